"""From messages to copies of them, each with the topic it goes to, or the reason why it goes nowhere."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ams.pipeline.columns import BROKEN, MESSAGES
from ams.pipeline.jobs.marking import marked
from ams.pipeline.jobs.republish.rules import SOURCE_TOPIC, Part, Rule, parts

ORDER = ("source", "offset", "copy")
"""The order of the copies in a topic: that of the messages in the topic each was read from."""
ORIGIN_TOPIC, ORIGIN_OFFSET = "ams-origin-topic", "ams-origin-offset"
"""Attributes that tell where a copy comes from, where they are wanted."""

_NAME = r"^[a-zA-Z0-9_-]{1,255}\z"
_TARGETS = "array<struct<name:string,topic:string>>"


def routed(messages: DataFrame, rules: Sequence[Rule], default: Sequence[str], barred: Sequence[str]) -> DataFrame:
    """Return a row for each copy: the columns of a message, `copy` (its number), `to`, and `reason`.

    `to` is null where `reason` is not. Messages for which no rule holds go to `default`; nothing goes to a topic that
    is `barred`, because the messages come from there and would come again and again.
    """
    targets = _targets(default)
    for rule in reversed(rules):
        targets = F.when(_holds(rule), _targets(rule.to)).otherwise(targets)
    copies = messages.select(*MESSAGES.names, F.posexplode(targets).alias("copy", "target"))
    reason = _reason(F.col("target").getField("name"), F.col("target").getField("topic"), barred)
    told = copies.withColumn("reason", reason)
    to = F.when(F.col("reason").isNull(), F.col("target").getField("topic"))
    return told.select(*MESSAGES.names, "copy", to.alias("to"), "reason")


def to_publish(copies: DataFrame, *, origin: bool) -> DataFrame:
    """Return the copies that go somewhere, with the columns of the sink and those of `ORDER`."""
    going = copies.where(F.col("to").isNotNull())
    sent = (F.col("to").alias("topic"), "data", sent_attributes(origin=origin).alias("attributes"), "ordering_key")
    return going.select(*sent, _source().alias("source"), "offset", "copy")


def sent_attributes(*, origin: bool) -> Column:
    """Return the attributes that copies are published with."""
    marks = {ORIGIN_TOPIC: _source(), ORIGIN_OFFSET: F.col("offset").cast("string")}
    return marked(marks) if origin else F.col("attributes")


def _source() -> Column:
    return F.concat_ws("/", "project", "topic")


def set_aside(copies: DataFrame) -> DataFrame:
    """Return the copies that go nowhere though a rule sends them, as `columns.BROKEN`."""
    return copies.where(F.col("reason").isNotNull()).select(*BROKEN.names)


def _holds(rule: Rule) -> Column:
    value = F.col("attributes").getItem(rule.attribute)
    if not rule.attribute:
        return F.lit(True)
    return F.coalesce(value.isin(*rule.values), F.lit(False)) if rule.values else value.isNotNull()


def _targets(names: Sequence[str]) -> Column:
    found = [F.struct(F.lit(name).alias("name"), _topic(parts(name)).alias("topic")) for name in names]
    return F.array(*found).cast(_TARGETS)


def _topic(pieces: Sequence[Part]) -> Column:
    """Return the name that pieces make, null when an attribute is missing."""
    return F.concat(*(_piece(each) for each in pieces))


def _piece(part: Part) -> Column:
    if part.attribute is None:
        return F.lit(part.text)
    return F.col("topic") if part.attribute == SOURCE_TOPIC else F.col("attributes").getItem(part.attribute)


def _reason(name: Column, topic: Column, barred: Sequence[str]) -> Column:
    return (
        F.when(topic.isNull(), F.concat(F.lit("it lacks an attribute that makes the name of the topic "), name))
        .when(~topic.rlike(_NAME), F.concat(F.lit("its attributes make no name of a topic for "), name))
        .when(topic.isin(*barred), F.concat(F.lit("it would go back to where it was read from, by "), name))
    )
