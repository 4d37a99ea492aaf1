"""From descriptions to a catalogue: the latest of each topic, and what follows from all of these."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any, get_args, get_origin

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ams.pipeline.columns import PLACE
from ams.pipeline.jobs.cloud.description import Capacity, Description, Endpoint, Flavour, Image, Share

_TOPIC = r"^SITE_(.+)_ENDPOINT_([^_]+)$"
"""Topics of sites: the site's name, and the id of its endpoint in the configuration database."""


def _type(of: Any) -> DataType:
    """Return the type of a column by that of a field: text, whole numbers, structs, lists of them, or none."""
    if of in (str, int):
        return StringType() if of is str else LongType()
    if get_origin(of) is tuple:
        return ArrayType(_type(get_args(of)[0]))
    return _type(get_args(of)[0]) if get_args(of) else _struct(of)


def _struct(of: type[msgspec.Struct]) -> StructType:
    return StructType([StructField(each.name, _type(each.type)) for each in msgspec.structs.fields(of)])


def _columns(kind: DataType, names: str) -> list[StructField]:
    return [StructField(name, kind) for name in names.split()]


DESCRIPTION = _struct(Description)
"""What one message says; `parse` makes these."""

LATEST = StructType([*PLACE.fields, StructField("endpoint_id", StringType()), *DESCRIPTION.fields])
"""A description and where it stands. `site` and `endpoint_id` are those of the topic's name, where it has them."""

_AT = StructType([*_columns(StringType(), "site endpoint_id topic"), StructField("offset", LongType())])
"""Whose description a row is of, and by topic and offset which message that was."""
SITES = StructType(
    [
        *_AT.fields,
        StructField("published", TimestampType()),
        StructField("silent_hours", DoubleType()),
        StructField("stale", BooleanType()),
        StructField("shape", StringType()),
        *_columns(ArrayType(StringType()), "vos"),
        *_columns(LongType(), "endpoints images flavours"),
        *_struct(Capacity).fields,
    ]
)
"""A row for each topic, hours to two digits. The three counts are of different ones."""
_VO = _columns(StringType(), "vo")
ITEMS = {
    "endpoints": StructType([*_AT.fields, *_struct(Endpoint).fields]),
    "shares": StructType([*_AT.fields, *_struct(Share).fields]),
    "images": StructType([*_VO, *_AT.fields, *_struct(Image).fields[:-1]]),
    "flavours": StructType([*_VO, *_AT.fields, *_struct(Flavour).fields[:-1]]),
}
"""A row for each item of each topic; of images and flavours for each VO that may use it."""


def placed(descriptions: DataFrame) -> DataFrame:
    """Return descriptions (`DESCRIPTION` and `source`) with their place."""
    topic = F.col("source.topic")
    named = F.nullif(F.regexp_extract(topic, _TOPIC, 1), F.lit(""))
    return descriptions.select(
        *(F.col(f"source.{name}").alias(name) for name in PLACE.names),
        F.nullif(F.regexp_extract(topic, _TOPIC, 2), F.lit("")).alias("endpoint_id"),
        "shape",
        F.coalesce(named, "site", topic).alias("site"),
        *DESCRIPTION.names[2:],
    ).select(*LATEST.names)


def latest(descriptions: DataFrame) -> DataFrame:
    """Keep of each topic the description published last, whichever comes first here."""
    newest = Window.partitionBy("project", "topic").orderBy(F.desc("publish_time"), F.desc("offset"))
    ranked = descriptions.withColumn("_rank", F.row_number().over(newest))
    return ranked.where(F.col("_rank") == 1).select(*LATEST.names)


def sites(descriptions: DataFrame, now: datetime, stale_hours: float) -> DataFrame:
    """Return a row for each topic, by its latest description; `stale` if that is older than so many hours at `now`."""
    seconds = F.lit(now).cast("double") - F.col("publish_time").cast("double")
    return descriptions.select(
        "site",
        "endpoint_id",
        "topic",
        "offset",
        F.col("publish_time").alias("published"),
        F.round(seconds / 3600, 2).alias("silent_hours"),
        (seconds > stale_hours * 3600).alias("stale"),
        "shape",
        _vos().alias("vos"),
        *(_different(name).alias(name) for name in ("endpoints", "images", "flavours")),
        *(F.col(f"capacity.{name}").alias(name) for name in Capacity.__struct_fields__),
    ).select(*SITES.names)


def _different(name: str) -> Column:
    """Count the different items of a list."""
    return F.size(F.array_distinct(F.col(f"{name}.id"))).cast("long")


def _vos() -> Column:
    """Return all VOs that a description names."""
    named = F.concat(F.col("shares.vo"), F.flatten(F.col("images.vos")), F.flatten(F.col("flavours.vos")))
    return F.array_sort(F.array_distinct(named))


def items(descriptions: DataFrame, name: str) -> DataFrame:
    """Return the table `name` of `ITEMS`; of what is not said to be of a VO one row, with an empty one."""
    each = descriptions.select(*_AT.names, F.explode(name).alias("each")).select(*_AT.names, "each.*")
    if "vos" in each.columns:
        each = each.withColumn("vo", F.explode(F.when(F.size("vos") > 0, F.col("vos")).otherwise(F.array(F.lit("")))))
    return each.select(*ITEMS[name].names).distinct()


def exported(sites: DataFrame, offered: Mapping[str, DataFrame], now: datetime, stale_hours: float) -> bytes:
    """Return the catalogue as JSON for programs that read no tables: every site, and for each VO where it finds what.

    It holds names and numbers only, so that it is small: what the tables say of an image is not repeated.
    """
    rows = {row["topic"]: row.asDict() for row in sites.sort("site", "topic").toLocalIterator()}
    offers: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(dict)
    for kind in ("images", "flavours"):
        names = offered[kind].groupBy("vo", "topic").agg(F.array_sort(F.collect_set("name")).alias("names"))
        for vo, topic, found in names.toLocalIterator():
            offers[vo, topic][kind] = list(found)
    vos: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (vo, topic), offer in sorted(offers.items()):
        place = {name: rows[topic][name] for name in ("site", "endpoint_id", "stale")}
        vos[vo].append({**place, "images": [], "flavours": [], **offer})
    value = {"generated": now, "stale_after_hours": stale_hours, "sites": list(rows.values()), "vos": vos}
    return msgspec.json.format(msgspec.json.encode(value), indent=1)
