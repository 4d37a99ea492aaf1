"""Options of `format("ams")` (docs/reference/spark.md), source and sink, validated before any request to the service.

Case does not matter, as everywhere in Spark. Service and credentials are resolved where the query is planned, never on
the executors.
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
from ams.client.connection import SettingsSource, connection
from ams.client.errors import BadConnection, NoService
from ams.core.names import is_name, is_resource_name
from ams.pipeline.errors import WrongOption

ACCESS = ("endpoint", "token", "tokenFile", "ca", "profile", "project", "retrySeconds")
_MAX_DIGITS = 18  # of a whole number that Java can hold
RETRY_SECONDS = 60.0


class ResourceName(NamedTuple):
    """A topic or a subscription by its project and name."""

    project: str
    name: str

    def __str__(self) -> str:
        return f"{self.project}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Endpoint, credentials and retry time. Pickled to the executors with the reader; never shown."""

    endpoint: str
    token: str = field(repr=False)
    ca: str | None = field(repr=False)  # trusted certificates as PEM text: executors need no file
    retry_seconds: float = RETRY_SECONDS
    bearer: Bearer | None = field(default=None, repr=False)  # replaces the token; files must exist on executors


class RawOptions:
    """The raw options, with readers by type."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def allow(self, names: Collection[str]) -> None:
        """Raise `WrongOption` for any other option."""
        known = {name.lower(): name for name in names}
        for name in self._values:
            if name not in known:
                close = [known[each] for each in difflib.get_close_matches(name, known, 1)]
                hint = f"; {close[0]} is meant?" if close else ""
                raise WrongOption(name, f"there is no such option{hint}")

    def text(self, name: str) -> str | None:
        """Return an option's stripped value; None if absent or empty."""
        return self._values.get(name.lower(), "").strip() or None

    def count(self, name: str) -> int | None:
        """Return a whole number of at least 1."""
        text = self.text(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdecimal() or len(text) > _MAX_DIGITS or int(text) < 1:
            raise WrongOption(name, f"{_quote(text)} is no whole number of at least 1, or too large")
        return int(text)

    def truth(self, name: str, *, default: bool) -> bool:
        """Return whether an option is `true`."""
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise WrongOption(name, f"{_quote(text)} is neither true nor false")
        return text == "true"

    def seconds(self, name: str, default: float) -> float:
        """Return a number of seconds that is not negative."""
        text = self.text(name)
        try:
            value = float(text) if text else default
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise WrongOption(name, f"{_quote(text or '')} is no number of seconds")
        return value

    def access(self, environment: Mapping[str, str] = os.environ) -> tuple[Access, str | None]:
        """Return the access, and the project in use if any."""
        asked = SettingsSource(
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
            blamed = "profile" if self.text("profile") and not asked.endpoint else None  # the most likely cause
            raise WrongOption(blamed or ("tokenFile" if asked.token_file else "endpoint"), error.message) from None
        access = Access(
            endpoint=found.endpoint,
            token=found.token,
            ca=_certificates(found.ca) if found.endpoint.startswith("https:") else None,
            retry_seconds=self.seconds("retrySeconds", RETRY_SECONDS),
            bearer=found.bearer,
        )
        return access, found.project


def names(option: str, text: str, project: str | None) -> tuple[ResourceName, ...]:
    """Read comma-separated names, each `PROJECT/NAME` or `NAME` of the project in use."""
    found: list[ResourceName] = []
    for each in (each.strip() for each in text.split(",")):
        before, slash, name = each.rpartition("/")
        owner = before if slash else project
        if owner is None:
            raise WrongOption("project", f"is needed for {option} {_quote(each)}, which does not name its project")
        if not is_name(owner) or not is_resource_name(name):
            raise WrongOption(option, f"{_quote(each)} is no name and no PROJECT/NAME")
        found.append(ResourceName(owner, name))
    doubled = [each for each in found if found.count(each) > 1]
    if doubled:
        raise WrongOption(option, f"{doubled[0]} stands there twice")
    return tuple(found)


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern: it has `*`, `?` or `[`."""
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
    """Read an ISO 8601 time with its zone; None if it is not one."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _quote(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")


READING = (
    *("topic", "topicPattern", "subscription", "maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss"),
    *("startingOffsets", "startingTimestamp", "endingOffsets", "endingTimestamp"),
)

EARLIEST, LATEST = -2, -1  # oldest message kept, and the end, as in Spark's Kafka source
Positions = Mapping[str, int]  # by `PROJECT/TOPIC`, also `EARLIEST` and `LATEST`; key `""` is for all other topics


class Reading:
    """Options of a source. Pickled to the executors with the reader; never shown."""

    def __init__(self, options: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> None:
        """Read the options. Raises `WrongOption` for the first invalid one."""
        given = RawOptions(options)
        given.allow(ACCESS + READING)
        self.access, project = given.access(environment)
        self.project = project or ""  # of the patterns; empty if none is in use
        # No topics are named for a subscription or patterns.
        self.topics, self.subscription, self.patterns = _selected_names(given, project)
        self.starting = _start_or_end(given, "starting", self.topics)  # None: the default
        self.ending = _start_or_end(given, "ending", self.topics)  # of a batch; None: at the end
        self.max_offsets = given.count("maxOffsetsPerTrigger")
        self.min_partitions = given.count("minPartitions")
        self.fail_on_data_loss = given.truth("failOnDataLoss", default=True)

    @property
    def through(self) -> str:
        """The subscription that gives the right to read; empty when topics are read."""
        return self.subscription.name if self.subscription else ""

    @property
    def begins_at_end(self) -> bool:
        """True if a query without a checkpoint may begin at the end."""
        if self.starting is None:
            return self.subscription is None
        if isinstance(self.starting, datetime):
            return True
        return LATEST in self.starting.values()


def _selected_names(
    given: RawOptions, project: str | None
) -> tuple[tuple[ResourceName, ...], ResourceName | None, tuple[str, ...]]:
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
            raise WrongOption("topicPattern", f"{_quote(pattern)} has an empty pattern")
        return (), None, patterns
    if not subscription:
        raise WrongOption("topic", "is missing; give it, or a subscription")
    found = names("subscription", subscription, project)
    if len(found) > 1:
        raise WrongOption("subscription", "only one can be read")
    return (), found[0], ()


def _start_or_end(given: RawOptions, which: str, topics: Collection[ResourceName]) -> Positions | datetime | None:
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
    raise WrongOption(timestamp, f"{_quote(text)} is no time such as 2024-03-05T10:20:30Z, nor milliseconds")


_END_WORDS = {"earliest": EARLIEST, "latest": LATEST}


def _positions(given: RawOptions, option: str, topics: Collection[ResourceName]) -> Positions | None:
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
        raise WrongOption(option, f"{_quote(text)} is none of {what}")
    # Exactly the topics that are read must have one.
    full = {topic.name: str(topic) for topic in topics} | {str(topic): str(topic) for topic in topics}
    for name in value:
        if topics and name not in full:
            raise WrongOption(option, f"{_quote(name)} is not among the topics that are read")
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
KEY_WINDOW_SECONDS = 86400.0  # assumed idempotency window of the service

_KEY = re.compile(r"[!-~]{1,128}")


class Limits(NamedTuple):
    """Size limits of a request; a larger message has a request of its own."""

    messages: int = 1000
    bytes: int = 4 * 1024 * 1024  # of its body: well below the 16 MiB a service takes as it comes
    open_bytes: int = 32 * 1024 * 1024  # memory limit for all open requests together; beyond it all are closed


class Writing:
    """Options of a sink. Pickled to the executors with the writer; never shown."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Read the options. Raises `WrongOption` for the first invalid one."""
        given = RawOptions(options)
        given.allow(ACCESS + WRITING)
        self.access, project = given.access()
        topic = given.text("topic")
        if topic is None and project is None:
            raise WrongOption("project", "is missing; it says where the topics are")
        if topic is not None:
            found = names("topic", topic, project)
            if len(found) > 1:
                raise WrongOption("topic", "all rows go to one; a column topic sends each to its own")
            [(project, topic)] = found
        self.project, self.topic = project or "", topic  # without a topic each row names its own
        # Columns whose values must not decrease; they also name rows in errors.
        self.order_by = tuple(each.strip() for each in (given.text("orderBy") or "").split(",") if each.strip())
        self.idempotency_key = given.text("idempotencyKey")
        if self.idempotency_key is not None and not _KEY.fullmatch(self.idempotency_key):
            raise WrongOption("idempotencyKey", "has 1 to 128 visible ASCII characters and no blanks")
        self.create_topics = given.truth("createTopics", default=False)
        most, most_bytes = given.count("maxRequestMessages"), given.count("maxRequestBytes")
        self.limits = Limits(most or Limits().messages, most_bytes or Limits().bytes)
        self.key_window = given.seconds("keyWindow", KEY_WINDOW_SECONDS)  # minimum window of the service, in seconds
        self.checkpoint = given.text("checkpointLocation")  # of a streaming query, from the option
