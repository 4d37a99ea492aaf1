"""What may be said to `format("ams")`, source and sink: read and checked before anything is asked of a service.

Options are named as those of Spark's Kafka source where they mean the same. Upper and lower case are one, as
everywhere in Spark. What says which service and as whom may also be left to the environment, a profile or the data
folder here, exactly as on the command line; it is resolved where the query is planned, never on the executors.
"""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from ams.client.bearer import Bearer
from ams.client.connection import Connection, Source, connection
from ams.client.errors import BadConnection, NoService
from ams.core.names import is_name
from ams.pipeline.errors import WrongOption

ACCESS = ("endpoint", "token", "tokenFile", "ca", "profile", "project", "retrySeconds")
"""Options of source and sink alike."""
_DIGITS = 18
"""Of a whole number that Java can hold."""
RETRY_SECONDS = 60.0
"""How long a call to a service that is away is tried again, unless it is said otherwise."""


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
    ca: str | None = field(repr=False)
    """Certificates to trust, as PEM text: executors need not have the file."""
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
        if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
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

    def access(self, environment: Mapping[str, str]) -> tuple[Access, str | None]:
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
        found = self._connection(asked, environment)
        access = Access(
            endpoint=found.endpoint,
            token=found.token,
            ca=_certificates(found.ca) if found.endpoint.startswith("https:") else None,
            retry_seconds=self.seconds("retrySeconds", RETRY_SECONDS),
            bearer=found.bearer,
        )
        return access, found.project

    def _connection(self, asked: Source, environment: Mapping[str, str]) -> Connection:
        try:
            return connection(asked, self.text("profile"), environment)
        except NoService:
            reason = "no service is named: give it, a profile, or AMS_ENDPOINT where Spark is started"
            raise WrongOption("endpoint", reason) from None
        except BadConnection as error:
            # The option that it most likely is about.
            blamed = "profile" if self.text("profile") and not asked.endpoint else None
            raise WrongOption(blamed or ("tokenFile" if asked.token_file else "endpoint"), error.message) from None


def names(option: str, text: str, project: str | None) -> tuple[Name, ...]:
    """Read names parted by commas, each `PROJECT/NAME` or `NAME` of the project in use."""
    found = tuple(_name(option, each.strip(), project) for each in text.split(","))
    doubled = [each for each in found if found.count(each) > 1]
    if doubled:
        raise WrongOption(option, f"{doubled[0]} stands there twice")
    return found


def is_pattern(name: str) -> bool:
    """Whether a name stands for all topics like it, as it has one of `*`, `?` and `[`."""
    return not {"*", "?", "["}.isdisjoint(name)


def _name(option: str, text: str, project: str | None) -> Name:
    before, slash, name = text.rpartition("/")
    owner = before if slash else project
    if owner is None:
        raise WrongOption("project", f"is needed for {option} {shortened(text)}, which does not name its project")
    if not is_name(owner) or not is_name(name):
        raise WrongOption(option, f"{shortened(text)} is no name and no PROJECT/NAME")
    return Name(owner, name)


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
