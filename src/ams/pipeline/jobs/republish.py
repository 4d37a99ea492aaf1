"""The job `republish`: messages published on, to topics by attribute and value, to several, or under another name.

A request holds many messages, and the service refuses it whole. So messages that a topic's schema would refuse are set
aside before, by the schemas at the start of the batch. If a schema attached meanwhile refuses one, the run ends; the
next run sets the message aside.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Annotated

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ams.client import wire
from ams.client.errors import NotAllowed, NotFound
from ams.core.names import RESOURCE_NAME
from ams.pipeline.checkpoint import CHECKPOINT
from ams.pipeline.columns import BROKEN, MESSAGES
from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.base import Job
from ams.pipeline.jobs.schema_check import SchemaParts, Verdicts, rules_named
from ams.pipeline.options import KEY_WINDOW_SECONDS
from ams.pipeline.run import Run, Source
from ams.pipeline.service_calls import open_service
from ams.pipeline.sink import publish
from ams.pipeline.sink.requests import with_attributes
from ams.pipeline.sink.writer import refuse_stale

ORDER = ("source", "offset", "copy")  # of a topic's copies: that of the messages in the topic each was read from
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_LITERAL = re.compile(r"[a-zA-Z0-9._~+%-]*")
_EXISTING_NAME = rf"^(?:{RESOURCE_NAME})\z"  # existing topics
_NEW_NAME = r"^[a-zA-Z0-9_-]{1,255}\z"  # topics that the job may make
_TARGETS = "array<struct<name:string,topic:string>>"


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says of some messages where they go; the first rule that holds for a message decides."""

    attribute: str = ""
    """The attribute that is looked at; empty: the rule holds for every message."""
    values: tuple[str, ...] = ()
    """What the attribute must be, one of these; empty: anything, but the message must have it."""
    to: tuple[str, ...] = ()
    """Topics, each of which gets the message; `{NAME}` stands for the attribute NAME, `{topic}` for the topic the
    message was read from. Empty: the message goes nowhere."""

    def __post_init__(self) -> None:
        if self.values and not self.attribute:
            raise ValueError("values without an attribute: which one is looked at?")
        _check_names(self.to)


class RepublishOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of `republish`."""

    topics: tuple[str, ...]
    """Topics that are read, each a name or PROJECT/NAME."""
    rules: tuple[Rule, ...] = ()
    """Rules; the first one that holds for a message decides."""
    default: tuple[str, ...] = ()
    """Topics for messages that no rule holds for, named as in rules; empty: they go nowhere."""
    project: str = ""
    """The project of the topics that messages go to; empty: the one in use."""
    create_topics: bool = False
    """Make topics that do not exist, instead of failing."""
    origin: bool = False
    """Add the attributes `ams-origin-topic` (PROJECT/TOPIC) and `ams-origin-offset`."""
    batch_messages: Annotated[int, msgspec.Meta(ge=1)] = 50_000
    """Messages a batch at most."""
    key_window: float = KEY_WINDOW_SECONDS
    """Seconds the service knows idempotency keys: at most its `idempotency_window` and the time messages are kept."""

    def __post_init__(self) -> None:
        if not self.topics:
            raise WrongOption("topics", "at least one is read")
        if not self.rules and not self.default:
            raise WrongOption("rules", "there are none and no default, so that nothing would go anywhere")
        try:
            _check_names(self.default)
        except ValueError as error:
            raise WrongOption("default", str(error)) from None
        for name in (*self.default, *(name for rule in self.rules for name in rule.to)):
            if not self.project and name in self.topics:
                raise WrongOption("topics", f"{name} is read and written; its messages would come again and again")


def run(run: Run, options: RepublishOptions) -> None:
    """Publish each message by the rules, once and in order; messages without a target, or refused, are set aside."""
    refuse_stale(run.work / CHECKPOINT, options.key_window)
    target = {**run.source, "project": options.project} if options.project else run.source
    written = {**target, "createTopics": str(options.create_topics), "keyWindow": str(options.key_window)}
    own = run.source.get("project")
    parted = [name.rpartition("/") for name in options.topics]
    barred = [name for owner, _, name in parted if (owner or own) == (options.project or own)]

    def handle(batch: DataFrame) -> None:
        copies = judged = run.cached(_route_messages(batch, options, barred))
        topics = copies.where("to IS NOT NULL").select("to").distinct().collect()
        source = F.concat_ws("/", "project", "topic")
        marks = {"ams-origin-topic": source, "ams-origin-offset": F.col("offset").cast("string")}
        attributes = with_attributes(marks) if options.origin else F.col("attributes")
        if rules := _rules_of(target, (each.to for each in topics)):
            judged = run.cached(_fitting(copies, rules, attributes))
        sent = (F.col("to").alias("topic"), "data", attributes.alias("attributes"), "ordering_key")
        going = judged.where("to IS NOT NULL").select(*sent, source.alias("source"), "offset", "copy")
        publish(going, written, ORDER)
        run.set_aside(judged.where("reason IS NOT NULL").select(*BROKEN.names))

    run.stream(run.topic(*options.topics, maxOffsetsPerTrigger=str(options.batch_messages)), handle)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not all(_LITERAL.fullmatch(text) for text in _PLACEHOLDER.split(name)[::2]):
            raise ValueError(f"{name!r} is no name of a topic: letters, digits, - _ . ~ + % and {{ATTRIBUTE}}")
        if not name:
            raise ValueError("a topic has a name")
    if len(set(names)) < len(names):
        raise ValueError("a topic stands there twice")


def _route_messages(messages: DataFrame, options: RepublishOptions, barred: Sequence[str]) -> DataFrame:
    """Return a row for each copy: the columns of a message, `copy` (a number), and `to` or the `reason` for none."""
    targets = _targets(options.default)
    for rule in reversed(options.rules):
        targets = F.when(_holds(rule), _targets(rule.to)).otherwise(targets)
    copies = messages.select(*MESSAGES.names, F.posexplode(targets).alias("copy", "target"))
    name, topic = F.col("target.name"), F.col("target.topic")
    a_name = _NEW_NAME if options.create_topics else _EXISTING_NAME
    reason = (
        F.when(topic.isNull(), F.concat(F.lit("it lacks an attribute that makes the name of the topic "), name))
        .when(~topic.rlike(a_name), F.concat(F.lit("its attributes make no name of a topic for "), name))
        .when(topic.isin(*barred), F.concat(F.lit("it would go back to where it was read from, by "), name))
    )
    told = copies.withColumn("reason", reason)
    to = F.when(F.col("reason").isNull(), F.col("target.topic"))
    return told.select(*MESSAGES.names, "copy", to.alias("to"), "reason")


def _holds(rule: Rule) -> Column:
    if not rule.attribute:
        return F.lit(True)
    value = F.col("attributes").getItem(rule.attribute)
    return F.coalesce(value.isin(*rule.values), F.lit(False)) if rule.values else value.isNotNull()


def _targets(names: Sequence[str]) -> Column:
    targets = (F.struct(F.lit(name).alias("name"), _topic(name).alias("topic")) for name in names)
    return F.array(*targets).cast(_TARGETS)


def _topic(name: str) -> Column:
    parts = []
    for number, piece in enumerate(_PLACEHOLDER.split(name)):  # texts and attributes alternate
        attribute = F.col("topic") if piece == "topic" else F.col("attributes").getItem(piece)
        parts.append(attribute if number % 2 else F.lit(piece))
    return F.concat(*parts)


def _rules_of(source: Source, topics: Iterable[str]) -> dict[str, SchemaParts]:
    """Ask for the schemas of topics; those that cannot be read are checked by publishing."""
    found = {}
    with open_service(source) as (service, project):
        for topic in topics:
            with suppress(NotFound, NotAllowed):
                if schema := service.call(wire.get_topic(project, topic)).schema:
                    _, owner, _, name = schema.split("/")
                    found[topic] = rules_named(service, owner, name)
    return found


def _fitting(copies: DataFrame, rules: Mapping[str, SchemaParts], attributes: Column) -> DataFrame:
    """Return the copies of `_route_messages`; those that their topic would refuse get a reason instead of a target."""

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ExitStack() as stack:
            verdicts = {topic: stack.enter_context(Verdicts(each)) for topic, each in rules.items()}
            for batch in batches:
                yield _check_copies(batch, verdicts)

    return copies.withColumn("sent", attributes).mapInArrow(judge, copies.schema)


def _check_copies(batch: pa.RecordBatch, verdicts: Mapping[str, Verdicts]) -> pa.RecordBatch:
    to, reasons = batch.column("to").to_pylist(), batch.column("reason").to_pylist()
    told = zip(*(batch.column(name).to_pylist() for name in ("offset", "data", "sent")), strict=True)
    for number, (offset, data, sent) in enumerate(told):
        known = verdicts.get(to[number])
        refusal = known.refusal(offset, data or b"", dict(sent or ())) if known else None
        if refusal is not None:
            to[number], reasons[number] = None, f"topic {to[number]} refuses it: {refusal}"
    columns = {name: batch.column(name) for name in batch.schema.names if name != "sent"}
    changed = {name: pa.array(new, columns[name].type) for name, new in (("to", to), ("reason", reasons))}
    return pa.RecordBatch.from_pydict({**columns, **changed})


SUMMARY = "Publish messages on: to topics by attribute and value, to several, or under another name"
HARMLESS = frozenset({"create_topics", "batch_messages", "key_window"})
JOB = Job("republish", SUMMARY, RepublishOptions, run, HARMLESS)
