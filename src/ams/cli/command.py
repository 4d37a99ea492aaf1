"""What client commands share: the options of the connection, a session made from them, and examples in their help."""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import typer

from ams.cli.arguments import Output
from ams.cli.completing import project_names
from ams.cli.exits import Usage
from ams.cli.output import Format, document, emit, note
from ams.client import Client, Retry
from ams.client.bearer import Bearer
from ams.client.connection import connection
from ams.client.errors import ClientError, NotAuthenticated
from ams.client.profiles import Source
from ams.client.wire import Call
from ams.core.settings import environment

T = TypeVar("T")

PATIENCE = Retry(attempts=None, total=30.0, first=0.5, longest=2.0)
"""How long a service that went away, perhaps to be restarted, is waited for by commands that work on."""
_ANONYMOUS = (
    "Unauthorized (no token was given: --token-file, AMS_TOKEN, AMS_TOKEN_FILE, AMS_BEARER_TOKEN_FILE or a profile"
    " names one)"
)


def _session(
    endpoint: Annotated[str | None, typer.Option(help="Service, https://HOST:PORT (AMS_ENDPOINT).")] = None,
    token: Annotated[str | None, typer.Option(help="Token; other users here can see it (AMS_TOKEN).")] = None,
    token_file: Annotated[str | None, typer.Option(help="File that holds the token (AMS_TOKEN_FILE).")] = None,
    bearer_token_file: Annotated[
        str | None,
        typer.Option(help="File of a bearer token, read again when it was renewed (AMS_BEARER_TOKEN_FILE)."),
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Project (AMS_PROJECT).", autocompletion=project_names)
    ] = None,
    ca: Annotated[str | None, typer.Option(help="File of CA certificates to trust (AMS_CA).")] = None,
    profile: Annotated[str | None, typer.Option(help="Profile to take the rest from (AMS_PROFILE).")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds an answer may take.")] = 30.0,
    output: Output = Format.TABLE,
) -> "Session":
    """Make a session of the options every client command has."""
    asked = Source(
        endpoint=endpoint,
        token=token,
        token_file=token_file,
        bearer_token_file=bearer_token_file,
        project=project,
        ca=ca,
    )
    found = connection(asked, profile, environment())
    client = Client(found.endpoint, found.token, bearer=found.bearer, ca=found.ca, timeout=timeout, retry=None)
    return Session(client, found.project, output, found.token, found.ca, profile, bearer=found.bearer)


@dataclass(frozen=True, slots=True)
class Session:
    """A client, the project it was pointed at, and the way results are written."""

    client: Client
    chosen_project: str | None
    output: Format
    token: str = field(repr=False)
    """Empty when none was found anywhere; then only status and version are answered, unless there is a bearer token."""
    ca: str | None
    """File of the CA certificates to trust."""
    profile: str | None = None
    """The profile that was named."""
    anonymous: str = _ANONYMOUS
    """What is said when the service wants a token and none was found."""
    bearer: Bearer | None = field(default=None, repr=False)
    """Instead of the token."""

    @property
    def project(self) -> str:
        """The project the command works in; raises `Usage` when none was named."""
        if not self.chosen_project:
            raise Usage("no project: give --project, set AMS_PROJECT, or name it in a profile")
        return self.chosen_project

    @property
    def for_programs(self) -> bool:
        """Whether results are JSON."""
        return self.output is Format.JSON

    @property
    def patient(self) -> Client:
        """The client for work that a restart of the service should not end: it tries again, and says so."""
        return self.client.with_retry(PATIENCE, _note_retry)

    def call(self, call: Call[T]) -> T:
        """Ask the service, once."""
        return self.client.call(call)

    def show(self, result: object, text: str) -> None:
        """Write a result: itself as JSON, or its text for people."""
        emit(document(result) if self.for_programs else text)

    def done(self, text: str) -> None:
        """Confirm work that has no result: a note for people, an empty object for programs."""
        if self.for_programs:
            emit("{}")
        else:
            note(text)


def _note_retry(error: ClientError, sent: int, _pause: float) -> None:
    if sent == 1:
        note(f"{error.message}; trying again for {PATIENCE.total:.0f} seconds")


def with_session(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command whose first parameter is the session the options of the connection instead of it."""
    return with_session_of(_session, function)


def with_session_of(make: Callable[..., Session], function: Callable[..., None]) -> Callable[..., None]:
    """Do the same with the options that `make` makes a session of."""
    shared = inspect.signature(make).parameters

    @functools.wraps(function)
    def run(**values: Any) -> None:
        session = make(**{name: values.pop(name) for name in shared})
        with session.client, _telling_of_no_token(session):
            function(session, **values)

    # The command line is read from the signature, so the signature says what `run` really takes.
    _first, *own = inspect.signature(function).parameters.values()
    run.__signature__ = _keyword_only([*own, *shared.values()])  # type: ignore[attr-defined]  # see inspect.signature
    return run


@contextmanager
def _telling_of_no_token(session: Session) -> Iterator[None]:
    try:
        yield
    except NotAuthenticated as error:
        if session.token or session.bearer:
            raise
        raise NotAuthenticated(session.anonymous, error.code, error.status) from error


def _keyword_only(parameters: list[inspect.Parameter]) -> inspect.Signature:
    return inspect.Signature([each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters])


def examples(*lines: str) -> str:
    """Return lines to be typed as they are shown below the help."""
    # The first line tells the formatter to keep the line ends.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
