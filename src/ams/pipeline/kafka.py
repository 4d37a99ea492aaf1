"""Topics of a service on Kafka, read from Kafka itself by Spark's own connector, in the same columns.

Needs `spark-sql-kafka-0-10` of the version of Spark, and rights on Kafka instead of a token. The service is asked
nothing, so no subscription moves.

A topic is on Kafka under `PREFIX.PROJECT.TOPIC.IDENTITY[-FIRST]`, one partition each; offset `n` there is `n + FIRST`
here. A record's value is the data, its headers are the attributes. Headers that begin with `ams:` are the service's
own: `ams:hole` marks what is no message, `ams:text` a value that is the text which was sent in the place of base64,
`ams:orderingKey` is the ordering key; an attribute whose name begins so is written with another colon after that.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from ams.pipeline.errors import WrongOption
from ams.pipeline.options import Name

MAX_NAME = 249
"""Characters of a Kafka topic's name; the service cuts what people would read in a longer one."""
IDENTITY = "[0-9a-f]{32}(-[0-9]{1,18})?"
_LONGEST_END = 33 + 19

OURS, HOLE, TEXT, ORDERING_KEY = "ams:", "ams:hole", "ams:text", "ams:orderingKey"
BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
LAST_TIME = "9999-12-31 23:59:59.999"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """Where a service keeps its topics."""

    servers: str
    """`host:port,...`, as its setting `log` has them."""
    prefix: str = "ams"
    """Its setting `kafka_prefix`."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More for Spark's Kafka source, such as `kafka.security.protocol`."""
    topic: str | None = None
    """The name on Kafka of a topic whose project was renamed since it was made, or whose names are very long."""


def load(reader: DataFrameReader | DataStreamReader, kafka: Kafka, topic: Name) -> DataFrame:
    """Load a topic with the columns `columns.MESSAGES`; `reader` has the options where to begin and end."""
    where = {"subscribe": kafka.topic} if kafka.topic else {"subscribePattern": pattern(kafka.prefix, topic)}
    asked = {"kafka.bootstrap.servers": kafka.servers, "includeHeaders": "true", **where, **kafka.options}
    return messages(reader.format("kafka").options(**asked).load(), topic)


def pattern(prefix: str, topic: Name) -> str:
    """Return the regular expression of a topic's name on Kafka, also after it was deleted and made again."""
    begin = f"{prefix}.{topic.project}.{topic.name}"
    if len(begin) + _LONGEST_END > MAX_NAME:
        raise WrongOption("topic", f"{topic} is too long to be found on Kafka by its name; give its name there")
    return f"{re.escape(begin)}\\.{IDENTITY}"


def messages(records: DataFrame, topic: Name) -> DataFrame:
    """Return records of Spark's Kafka source in the columns of a message.

    None of them but the ordering key is ever null, though Spark, which cannot know it, says that they may be.
    """
    headers = F.coalesce("headers", F.array())
    named = records.select(
        "value",
        "timestamp",
        (F.col("offset") + _first("topic")).alias("offset"),
        headers.alias("headers"),
        F.transform(headers, lambda each: each["key"]).alias("names"),
    )
    last_time = F.lit(LAST_TIME).cast("timestamp")
    kept = named.where(~F.coalesce(F.try_element_at("names", F.lit(1)) == HOLE, F.lit(False)))
    return kept.select(
        F.lit(topic.project).alias("project"),
        F.lit(topic.name).alias("topic"),
        "offset",
        F.col("offset").cast("string").alias("message_id"),
        F.least(F.greatest("timestamp", F.timestamp_seconds(F.lit(0))), last_time).alias("publish_time"),
        _attributes().alias("attributes"),
        _data().alias("data"),
        _ordering_key().alias("ordering_key"),
    )


def _first(topic: str) -> Column:
    """Return what the first offset of a topic on Kafka is called here: the number at the end of its name, if any."""
    return F.coalesce(F.regexp_extract(topic, "-([0-9]+)$", 1).try_cast("long"), F.lit(0))


def _attributes() -> Column:
    """Return the attributes of a record: of several with one name the last, what is no UTF-8 with replacements."""
    last = F.filter(
        "headers", lambda each, at: ~F.array_contains(F.slice("names", at + 2, F.size("names")), each["key"])
    )
    ours = F.filter(last, lambda each: ~each["key"].startswith(OURS) | each["key"].startswith(OURS + ":"))
    return F.map_from_entries(F.transform(ours, lambda each: F.struct(_name(each["key"]), _text(each["value"]))))


def _name(header: Column) -> Column:
    return F.when(header.startswith(OURS), F.concat(F.lit(OURS), F.substr(header, F.lit(6)))).otherwise(header)


def _text(value: Column) -> Column:
    return F.make_valid_utf8(F.coalesce(value, F.lit(b"")).cast("string"))


def _ordering_key() -> Column:
    """Return the ordering key of a record, of several the last; null when there is none."""
    last = F.try_element_at(F.filter("headers", lambda each: each["key"] == ORDERING_KEY), F.lit(-1))
    return F.nullif(_text(last["value"]), F.lit(""))


def _data() -> Column:
    """Return the data of a record; text that was sent is base64 with line breaks, or stays as it is."""
    value = F.coalesce("value", F.lit(b""))
    text = F.translate(value.cast("string"), "\r\n", "")
    decoded = F.when(text.rlike(BASE64), F.unbase64(text)).otherwise(value)
    return F.when(F.array_contains("names", TEXT), decoded).otherwise(value)
