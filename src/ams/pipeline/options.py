"""What may be said to `format("ams")`, source and sink: read and checked before anything is asked of a service.

Options are named as those of Spark's Kafka source where they mean the same. Upper and lower case are one, as
everywhere in Spark. What says which service and as whom may also be left to the environment, a profile or the data
folder here, exactly as on the command line; it is resolved where the query is planned, never on the executors.
"""

import difflib
import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ams.client.bearer import Bearer
from ams.client.connection import Source, connection
from ams.client.errors import BadConnection, NoService
from ams.core.names import is_name, is_resource_name
from ams.pipeline.errors import WrongOption

ACCESS = ("endpoint", "token", "tokenFile", "ca", "profile", "project", "retrySeconds")
_MAX_DIGITS = 18  # of a whole number that Java can hold
RETRY_SECONDS = 60.0


class Name(NamedTuple):
    """A topic or a subscription by its project and name."""

    project: str
    name: str

    def __str__(self) -> str:
        return f"{self.project}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Which service, as whom, and how patiently. It goes to the executors with the reader and is never shown."""

    endpoint: str
    token: str = field(repr=False)
    ca: str | None = field(repr=False)  # certificates to trust, as PEM text: executors need not have the file
    retry_seconds: float = RETRY_SECONDS
    bearer: Bearer | None = field(default=None, repr=False)
    """Instead of the token; of a file it is the name, which executors must have too."""


class Given:
    """Options as they were given, and the reading of single ones."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def allow(self, names: Collection[str]) -> None:
        """Raise `WrongOption` for an option that is none of these."""
        known = {name.lower(): name for name in names}
        for name in self._values:
            if name not in known:
                close = [known[each] for each in difflib.get_close_matches(name, known, 1)]
                hint = f"; {close[0]} is meant?" if close else ""
                raise WrongOption(name, f"there is no such option{hint}")

    def text(self, name: str) -> str | None:
        """Return an option's value without blanks around it; None when it is absent or empty."""
        return self._values.get(name.lower(), "").strip() or None

    def count(self, name: str) -> int | None:
        """Return a whole number of at least 1."""
        text = self.text(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdecimal() or len(text) > _MAX_DIGITS or int(text) < 1:
            raise WrongOption(name, f"{shortened(text)} is no whole number of at least 1, or too large")
        return int(text)

    def truth(self, name: str, *, default: bool) -> bool:
        """Return whether an option is `true`."""
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise WrongOption(name, f"{shortened(text)} is neither true nor false")
        return text == "true"

    def seconds(self, name: str, default: float) -> float:
        """Return a number of seconds that is not negative."""
        text = self.text(name)
        try:
            value = float(text) if text else default
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise WrongOption(name, f"{shortened(text or '')} is no number of seconds")
        return value

    def access(self, environment: Mapping[str, str] = os.environ) -> tuple[Access, str | None]:
        """Return which service, as whom, and the project in use, if any."""
        asked = Source(
            endpoint=self.text("endpoint"),
            token=self.text("token"),
            token_file=self.text("tokenFile"),
            project=self.text("project"),
            ca=self.text("ca"),
        )
        if asked.token and asked.token_file:
            raise WrongOption("tokenFile", "give the token or a file that holds it, not both")
        try:
            found = connection(asked, self.text("profile"), environment)
        except NoService:
            reason = "no service is named: give it, a profile, or AMS_ENDPOINT where Spark is started"
            raise WrongOption("endpoint", reason) from None
        except BadConnection as error:
            # The option that it most likely is about.
            blamed = "profile" if self.text("profile") and not asked.endpoint else None
            raise WrongOption(blamed or ("tokenFile" if asked.token_file else "endpoint"), error.message) from None
        access = Access(
            endpoint=found.endpoint,
            token=found.token,
            ca=_certificates(found.ca) if found.endpoint.startswith("https:") else None,
            retry_seconds=self.seconds("retrySeconds", RETRY_SECONDS),
            bearer=found.bearer,
        )
        return access, found.project


def names(option: str, text: str, project: str | None) -> tuple[Name, ...]:
    """Read names parted by commas, each `PROJECT/NAME` or `NAME` of the project in use."""
    found: list[Name] = []
    for each in (each.strip() for each in text.split(",")):
        before, slash, name = each.rpartition("/")
        owner = before if slash else project
        if owner is None:
            raise WrongOption("project", f"is needed for {option} {shortened(each)}, which does not name its project")
        if not is_name(owner) or not is_resource_name(name):
            raise WrongOption(option, f"{shortened(each)} is no name and no PROJECT/NAME")
        found.append(Name(owner, name))
    doubled = [each for each in found if found.count(each) > 1]
    if doubled:
        raise WrongOption(option, f"{doubled[0]} stands there twice")
    return tuple(found)


def is_pattern(name: str) -> bool:
    """Return whether a name stands for all topics like it, as it has one of `*`, `?` and `[`."""
    return not {"*", "?", "["}.isdisjoint(name)


def _certificates(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        with open(file, encoding="ascii") as opened:
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a certificate in PEM form"
        raise WrongOption("ca", f"{file}: {reason}") from None


def moment(text: str) -> datetime | None:
    """Read a time of ISO 8601 that names its zone; None for what is none."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def shortened(text: str) -> str:
    """Quote what was given, but not endlessly."""
    return repr(text if len(text) <= 60 else text[:60] + "...")


READING = (
    *("topic", "topicPattern", "subscription", "maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss"),
    *("startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp"),
)

EARLIEST, LATEST = -2, -1  # stand for the oldest message kept and for the end in offsets, as in Spark's Kafka source
Positions = Mapping[str, int]
"""Offsets by `PROJECT/TOPIC`, `EARLIEST` and `LATEST` among them; by `""` that of topics which are not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is to be read, of which service."""

    access: Access
    topics: tuple[Name, ...]  # empty when a subscription is read, which knows its topic, or when topics are looked for
    patterns: tuple[str, ...] = ()
    project: str  # of those topics; empty when none is in use
    subscription: Name | None
    starting: Positions | datetime | None  # None: wherever one starts who was told nothing
    ending: Positions | datetime | None  # of a batch; None: at the end
    max_offsets: int | None
    min_partitions: int | None
    fail_on_data_loss: bool

    @property
    def through(self) -> str:
        """The subscription by which consumers may read the topic; empty when topics are read."""
        return self.subscription.name if self.subscription else ""

    @property
    def begins_at_end(self) -> bool:
        """True if a query without a checkpoint begins at the end, or may do so."""
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
        starting=_point(given, "starting", topics),
        ending=_point(given, "ending", topics),
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
        if project is None:
            raise WrongOption("project", "is needed for topicPattern")
        patterns = tuple(each.strip() for each in pattern.split(","))
        if not all(patterns):
            raise WrongOption("topicPattern", f"{shortened(pattern)} has an empty pattern")
        return (), None, patterns
    if not subscription:
        raise WrongOption("topic", "is missing; give it, or a subscription")
    found = names("subscription", subscription, project)
    if len(found) > 1:
        raise WrongOption("subscription", "only one can be read")
    return (), found[0], ()


def _point(given: Given, which: str, topics: Collection[Name]) -> Positions | datetime | None:
    offsets, timestamp = f"{which}Offsets", f"{which}Timestamp"
    positions = _positions(given, offsets, topics)
    text = given.text(timestamp)
    if text is None:
        return positions
    if positions is not None:
        raise WrongOption(timestamp, f"give it or {offsets}, not both")
    try:
        is_number = text.isascii() and text.isdecimal()
        if found := datetime.fromtimestamp(int(text) / 1000, UTC) if is_number else moment(text):
            return found + timedelta(microseconds=-found.microsecond % 1000)
    except (ValueError, OverflowError, OSError):
        pass
    raise WrongOption(timestamp, f"{shortened(text)} is no time such as 2024-03-05T10:20:30Z, nor milliseconds")


_END_WORDS = {"earliest": EARLIEST, "latest": LATEST}


def _positions(given: Given, option: str, topics: Collection[Name]) -> Positions | None:
    text = given.text(option)
    if text is None:
        return None
    if text.lower() in _END_WORDS:
        return {"": _END_WORDS[text.lower()]}
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if _is_offset(value):
        return {"": value}
    if not isinstance(value, dict) or not all(_is_offset(each) for each in value.values()):
        what = 'earliest, latest, a number, {"PROJECT/TOPIC": number}'
        raise WrongOption(option, f"{shortened(text)} is none of {what}")
    # Every topic that is read must have one, and no other.
    full = {topic.name: str(topic) for topic in topics} | {str(topic): str(topic) for topic in topics}
    for name in value:
        if topics and name not in full:
            raise WrongOption(option, f"{shortened(name)} is not among the topics that are read")
    found: dict[str, int] = {full.get(name) or name: offset for name, offset in value.items()}
    for topic in topics:
        if str(topic) not in found:
            raise WrongOption(option, f"nothing is said of {topic}")
    return found


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= EARLIEST


WRITING = (
    *("topic", "orderBy", "idempotencyKey", "createTopics", "maxRequestMessages", "maxRequestBytes"),
    *("keyWindow", "checkpointLocation"),
)
KEY_WINDOW_SECONDS = 86400.0  # how long the service is believed to know idempotency keys, unless it is said otherwise

_KEY = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a request may be; a message that is larger travels alone."""

    messages: int = 1000
    bytes: int = 4 * 1024 * 1024  # of its body: well below the 16 MiB a service takes as it comes
    open_bytes: int = 32 * 1024 * 1024
    """Of all requests that are not full yet; beyond them all are closed, lest many topics fill the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """What is to be written, to which service. It goes to the executors with the writer and is never shown."""

    access: Access
    project: str
    topic: str | None  # where all rows go; None when each row says it
    order_by: tuple[str, ...]  # columns whose values never fall; the sink checks it, and names rows by them
    idempotency_key: str | None
    create_topics: bool
    limits: Limits
    key_window: float  # seconds the service knows keys at least
    checkpoint: str | None  # of a streaming query, where it was said by the option


def writing(options: Mapping[str, str]) -> Writing:
    """Read the options of a sink; raise `WrongOption` for the first that cannot be."""
    given = Given(options)
    given.allow(ACCESS + WRITING)
    access, project = given.access()
    topic = given.text("topic")
    if topic is None and project is None:
        raise WrongOption("project", "is missing; it says where the topics are")
    if topic is not None:
        found = names("topic", topic, project)
        if len(found) > 1:
            raise WrongOption("topic", "all rows go to one; a column topic sends each to its own")
        [(project, topic)] = found
    key = given.text("idempotencyKey")
    if key is not None and not _KEY.fullmatch(key):
        raise WrongOption("idempotencyKey", "has 1 to 128 visible ASCII characters and no blanks")
    return Writing(
        access=access,
        project=project or "",
        topic=topic,
        order_by=tuple(each.strip() for each in (given.text("orderBy") or "").split(",") if each.strip()),
        idempotency_key=key,
        create_topics=given.truth("createTopics", default=False),
        limits=Limits(
            messages=given.count("maxRequestMessages") or Limits().messages,
            bytes=given.count("maxRequestBytes") or Limits().bytes,
        ),
        key_window=given.seconds("keyWindow", KEY_WINDOW_SECONDS),
        checkpoint=given.text("checkpointLocation"),
    )
