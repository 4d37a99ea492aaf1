"""What is to be read: the options of the source."""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ams.pipeline.errors import WrongOption
from ams.pipeline.options import ACCESS, Access, Given, Name, moment, names, shortened

READING = (
    "topic",
    "topicPattern",
    "subscription",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
)

EARLIEST, LATEST = -2, -1
"""Stand for the oldest message kept and for the end in offsets, as in Spark's Kafka source."""
Positions = Mapping[str, int]
"""Offsets by `PROJECT/TOPIC`, `EARLIEST` and `LATEST` among them; by `""` that of topics which are not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is to be read, of which service."""

    access: Access
    topics: tuple[Name, ...]
    """Empty when a subscription is read, which knows its topic, or when topics are looked for."""
    patterns: tuple[str, ...] = ()
    """Topics with names like these are read, whenever they are made."""
    project: str
    """Of those topics; empty when none is in use."""
    subscription: Name | None
    starting: Positions | datetime | None
    """None: wherever one starts who was told nothing."""
    ending: Positions | datetime | None
    """Of a batch; None: at the end."""
    max_offsets: int | None
    min_partitions: int | None
    fail_on_data_loss: bool

    @property
    def through(self) -> str:
        """The subscription by which consumers may read the topic; empty when topics are read."""
        return self.subscription.name if self.subscription else ""

    @property
    def begins_at_end(self) -> bool:
        """Whether a query without a checkpoint begins at the end, or may do so."""
        if self.starting is None:
            return self.subscription is None
        if isinstance(self.starting, datetime):
            return True
        return LATEST in self.starting.values()


def reading(options: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> Reading:
    """Read the options of a source; raise `WrongOption` for the first that cannot be."""
    given = Given(options)
    given.allow(ACCESS + READING)
    access, project = given.access(environment)
    topics, subscription, patterns = _what(given, project)
    return Reading(
        access=access,
        topics=topics,
        patterns=patterns,
        project=project or "",
        subscription=subscription,
        starting=_place(given, "starting", topics),
        ending=_place(given, "ending", topics),
        max_offsets=given.count("maxOffsetsPerTrigger"),
        min_partitions=given.count("minPartitions"),
        fail_on_data_loss=given.truth("failOnDataLoss", default=True),
    )


def _what(given: Given, project: str | None) -> tuple[tuple[Name, ...], Name | None, tuple[str, ...]]:
    said = [option for option in ("topic", "topicPattern", "subscription") if given.text(option)]
    if len(said) > 1:
        raise WrongOption(said[-1], "give a subscription, topics, or a pattern, only one of them")
    topic, subscription, pattern = (given.text(option) for option in ("topic", "subscription", "topicPattern"))
    if topic:
        return names("topic", topic, project), None, ()
    if pattern:
        return (), None, _patterns(pattern, project)
    if not subscription:
        raise WrongOption("topic", "is missing; give it, or a subscription")
    found = names("subscription", subscription, project)
    if len(found) > 1:
        raise WrongOption("subscription", "only one can be read")
    return (), found[0], ()


def _patterns(text: str, project: str | None) -> tuple[str, ...]:
    if project is None:
        raise WrongOption("project", "is needed for topicPattern")
    patterns = tuple(each.strip() for each in text.split(","))
    if not all(patterns):
        raise WrongOption("topicPattern", f"{shortened(text)} has an empty pattern")
    return patterns


def _place(given: Given, which: str, topics: Collection[Name]) -> Positions | datetime | None:
    """Read where reading is `starting`, or `ending`."""
    offsets, timestamp = f"{which}Offsets", f"{which}Timestamp"
    positions = _positions(given, offsets, topics)
    text = given.text(timestamp)
    if text is None:
        return positions
    if positions is not None:
        raise WrongOption(timestamp, f"give it or {offsets}, not both")
    return _moment(timestamp, text)


def _moment(option: str, text: str) -> datetime:
    """Read milliseconds since 1970, as Spark's Kafka source has them, or a time with its zone; to a millisecond."""
    try:
        is_number = text.isascii() and text.isdecimal()
        if found := datetime.fromtimestamp(int(text) / 1000, UTC) if is_number else moment(text):
            return found + timedelta(microseconds=-found.microsecond % 1000)
    except (ValueError, OverflowError, OSError):
        pass
    raise WrongOption(option, f"{shortened(text)} is no time such as 2024-03-05T10:20:30Z, nor milliseconds")


_WORDS = {"earliest": EARLIEST, "latest": LATEST}


def _positions(given: Given, option: str, topics: Collection[Name]) -> Positions | None:
    text = given.text(option)
    if text is None:
        return None
    if text.lower() in _WORDS:
        return {"": _WORDS[text.lower()]}
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if _is_offset(value):
        return {"": value}
    if not isinstance(value, dict) or not all(_is_offset(each) for each in value.values()):
        raise WrongOption(
            option, f'{shortened(text)} is none of earliest, latest, a number, {{"PROJECT/TOPIC": number}}'
        )
    return _named(option, value, topics)


def _named(option: str, offsets: Mapping[str, int], topics: Collection[Name]) -> dict[str, int]:
    """Return offsets by full names; every topic that is read must have one, and no other."""
    full = {topic.name: str(topic) for topic in topics} | {str(topic): str(topic) for topic in topics}
    for name in offsets:
        if topics and name not in full:
            raise WrongOption(option, f"{shortened(name)} is not among the topics that are read")
    found = {full.get(name, name): offset for name, offset in offsets.items()}
    for topic in topics:
        if str(topic) not in found:
            raise WrongOption(option, f"nothing is said of {topic}")
    return found


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= EARLIEST
