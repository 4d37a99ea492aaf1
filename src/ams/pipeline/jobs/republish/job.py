"""The job `republish`."""

from typing import Annotated

import msgspec
from pyspark.sql import DataFrame

from ams.pipeline.checkpoint import CHECKPOINT
from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.base import Job
from ams.pipeline.jobs.republish.fitting import fitting, rules_of
from ams.pipeline.jobs.republish.routing import ORDER, routed, sent_attributes, set_aside, to_publish
from ams.pipeline.jobs.republish.rules import Rule, check_names
from ams.pipeline.running import Run
from ams.pipeline.sink import KEY_WINDOW_SECONDS, publish, refuse_stale


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is read, and where each message goes."""

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
            check_names(self.default)
        except ValueError as error:
            raise WrongOption("default", str(error)) from None
        for name in (*self.default, *(name for rule in self.rules for name in rule.to)):
            if not self.project and name in self.topics:
                raise WrongOption("topics", f"{name} is read and written; its messages would come again and again")


def run(run: Run, options: Options) -> None:
    """Publish each message on by the rules, once and in order; what makes no name or is refused is set aside."""
    refuse_stale(run.work / CHECKPOINT, options.key_window)
    target = {**run.source, "project": options.project} if options.project else run.source
    written = {**target, "createTopics": str(options.create_topics), "keyWindow": str(options.key_window)}
    barred = _barred(options, run.source.get("project"))

    def handle(batch: DataFrame, batch_id: int) -> None:
        judged = copies = routed(batch, options.rules, options.default, barred).persist()
        try:
            topics = copies.where("to IS NOT NULL").select("to").distinct().collect()
            rules = rules_of(target, (each.to for each in topics))
            if rules:
                judged = fitting(copies, rules, sent_attributes(origin=options.origin)).persist()
            publish(to_publish(judged, origin=options.origin), written, ORDER)
            run.quarantine(set_aside(judged), batch_id)
        finally:
            judged.unpersist()
            copies.unpersist()

    run.stream(run.topic(*options.topics, maxOffsetsPerTrigger=str(options.batch_messages)), handle)


def _barred(options: Options, project: str | None) -> list[str]:
    """Return the topics that are read from the project that is written to."""
    target = options.project or project
    parted = [name.rpartition("/") for name in options.topics]
    return [name for owner, _, name in parted if (owner or project) == target]


JOB = Job(
    "republish",
    "Publish messages on: to topics by attribute and value, to several, or under another name",
    Options,
    run,
    harmless=frozenset({"create_topics", "batch_messages", "key_window"}),
)
