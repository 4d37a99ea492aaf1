"""Declares client commands: groups, shared options, and the output of answers.

A command is a function: its parameters are its arguments and options, its docstring is its help. Most return the call
to send; the decorator says how the answer is printed:

    app = CommandGroup("ams topics create readings")

    @app.shows({"TOPIC": lambda each: short_name(each.name), "CREATED": "created_on"}, items="topics", name="list")
    def list_(session: Session, page: PageOptions) -> Call[wire.Topics]:
        '''List the topics of the project, newest first.'''
        return wire.list_topics(session.project, **page.query)

A command that only sends a call with its arguments is a line:

    app.sends("delete", wire.delete_topic, "topic {topic} deleted", "Remove a topic and its messages.", TOPIC)
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from ams.cli.arguments import NO_ARGUMENTS, Arguments, Output, option, project_names
from ams.cli.exit_codes import Usage
from ams.cli.output import Format, cell, columns, emit, fields, note, write
from ams.client import Client, Retry, wire
from ams.client.connection import OPTION, ConnectionSettings, SettingsSource, connection
from ams.client.errors import ClientError, NotAuthenticated
from ams.client.wire import Call
from ams.core.settings import environment

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
Columns = Mapping[str, str | Callable[[Any], object]]
"""Headers of a table, or names of fields, each with an attribute of the item or a function of it."""
AnswerText = str | Columns | Callable[[Any], str | Mapping[str, object]]
"""Text that confirms an empty answer, fields of an answer, or what makes its text."""
AnswerPart = Callable[[Any], Any] | None  # selects the part of an answer to print

PATIENCE = Retry(attempts=None, total=30.0, first=0.5, longest=2.0)
"""Retry policy of long-running commands, long enough for a restart of the service."""
_ANONYMOUS = (
    "Unauthorized (no token was given: --token-file, AMS_TOKEN, AMS_TOKEN_FILE, AMS_BEARER_TOKEN_FILE or a profile"
    " names one)"
)


class OptionSet:
    """Several options as one parameter of a command."""

    __slots__ = ()

    @classmethod
    def maker(cls) -> Callable[..., Any]:
        """Return the function that makes it; its parameters are the options."""
        return cls


@dataclass(frozen=True, slots=True)
class PageOptions(OptionSet):
    """Page of a list (contract 4)."""

    page_size: Annotated[int, option("So many at a time; 0: as many as there are.", min=0)] = 0
    page_token: Annotated[str, option("Which page: what the one before said.", metavar="TOKEN")] = ""
    every: Annotated[bool, option("All pages, put together.", "--all")] = False

    @property
    def query(self) -> dict[str, Any]:
        """The page as arguments of list calls."""
        return {"page_size": self.page_size, "page_token": self.page_token}


PAGE: Arguments = {"page": PageOptions}


@dataclass(frozen=True, slots=True)
class SessionOptions(OptionSet):
    """Options of every client command: connection and output."""

    endpoint: Annotated[str | None, option("Service, https://HOST:PORT (AMS_ENDPOINT).")] = None
    token: Annotated[str | None, option("Token; other users here can see it (AMS_TOKEN).")] = field(
        default=None, repr=False
    )
    token_file: Annotated[str | None, option("File that holds the token (AMS_TOKEN_FILE).")] = None
    bearer_token_file: Annotated[
        str | None, option("File of a bearer token, read again when it was renewed (AMS_BEARER_TOKEN_FILE).")
    ] = None
    project: Annotated[str | None, option("Project (AMS_PROJECT).", "--project", "-p", complete=project_names)] = None
    ca: Annotated[str | None, option("File of CA certificates to trust (AMS_CA).")] = None
    profile: Annotated[str | None, option("Profile to take the rest from (AMS_PROFILE).")] = None
    timeout: Annotated[float, option("Seconds an answer may take.", min=0.1)] = 30.0
    output: Output = Format.TABLE

    @property
    def source(self) -> SettingsSource:
        """The settings of the connection."""
        names = ("endpoint", "token", "token_file", "bearer_token_file", "project", "ca")
        return SettingsSource(place=OPTION, **{name: getattr(self, name) for name in names})


@dataclass(frozen=True, slots=True)
class Session(OptionSet):
    """A client, its project, and the output format."""

    client: Client
    at: ConnectionSettings  # without a token only status and version work
    output: Format
    profile: str | None = None  # the named one
    anonymous: str = _ANONYMOUS  # error if the service requires a token and there is none

    @classmethod
    def maker(cls) -> Callable[..., "Session"]:
        """Return the function that makes a session from `SessionOptions`."""

        def make(asked: SessionOptions) -> Session:
            found = connection(asked.source, asked.profile, environment())
            return Session(found.client(asked.timeout), found, asked.output, asked.profile)

        return with_options(make)

    @property
    def project(self) -> str:
        """The project of the command. Raises `Usage` if there is none."""
        if not self.at.project:
            raise Usage("no project: give --project, set AMS_PROJECT, or name it in a profile")
        return self.at.project

    @property
    def for_programs(self) -> bool:
        """True if results are JSON."""
        return self.output is Format.JSON

    @property
    def patient(self) -> Client:
        """A client with retries that survives a restart of the service, and reports retries."""
        return self.client.with_retry(PATIENCE, _note_retry)

    def call(self, call: Call[T]) -> T:
        """Send a call, without retries."""
        return self.client.call(call)

    def owner(self, user: str | None) -> str:
        """Return the named user, or the token's owner."""
        return user or self.call(wire.get_profile()).name

    def show(self, result: object, text: str | Mapping[str, object]) -> None:
        """Print a result: as JSON, or as text or fields for people."""
        write(self.output, result, text if isinstance(text, str) else fields(text))

    def confirm(self, text: str) -> None:
        """Confirm work that has no result: a note for people, an empty object for programs."""
        if self.for_programs:
            emit("{}")
        else:
            note(text)

    def fetch_pages(self, items: str, page: PageOptions, ask: Callable[[PageOptions], Call[T]]) -> T:
        """Return one page, or all pages as one; `items` is the list's field in the answer.

        Prints on stderr how to get the next page, unless the output is JSON, which has its token.
        """
        if not page.every:
            found = self.call(ask(page))
            following = getattr(found, "next_page_token", "")
            if following and not self.for_programs:
                note(f"there is more: --page-token {following}")
            return found
        if page.page_token:
            raise Usage("give --page-token or --all, not both")
        each = replace(page, page_size=page.page_size or 1000)
        found = self.call(ask(each))
        every = list(getattr(found, items))
        while following := getattr(found, "next_page_token", ""):
            found = self.call(ask(replace(each, page_token=following)))
            every += getattr(found, items)
        return msgspec.structs.replace(found, **{items: every})  # type: ignore[type-var]  # every answer is a Struct


class CommandGroup(typer.Typer):
    """A group of commands; without its own help it has that of the overview."""

    def __init__(
        self,
        *lines: str,
        help: str | None = None,  # noqa: A002  # as Typer calls it
        session: type[Session] = Session,
        of_project: bool = False,
    ) -> None:
        """Make a group; `lines` are examples below the help.

        `session` is that of commands that only send a call; `of_project`: the project is the call's first argument.
        """
        self._session = session
        self._of_project = of_project
        # The first line makes Typer keep the line ends.
        examples = "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])
        super().__init__(help=help, no_args_is_help=True, epilog=examples if lines else None)

    def does(self, name: str | None = None) -> Callable[[F], F]:
        """Add a command that takes option sets and prints its own output."""

        def add(function: F) -> F:
            self.command(name)(with_options(function))
            return function

        return add

    def shows(
        self, output: AnswerText, *, items: str = "", shown: AnswerPart = None, name: str | None = None
    ) -> Callable[[F], F]:
        """Add a command that returns a call, and prints the answer as `output` for people.

        A text for an empty answer is filled with the parameters of the command. If the answer is a list, `items` is its
        field: a page or all are printed, with fields as columns. `shown` selects the part to print.
        """

        def add(function: F) -> F:
            @functools.wraps(function)
            def run(session: Session, **values: Any) -> None:
                pages = {key: value for key, value in values.items() if isinstance(value, PageOptions)}
                page = next(iter(pages.values()), PageOptions())
                found = session.fetch_pages(
                    items, page, lambda each: function(session, **values | dict.fromkeys(pages, each))
                )
                result = shown(found) if shown else found
                if isinstance(output, str):
                    session.confirm(output.format(session=session, **values))
                elif callable(output):
                    session.show(result, output(result))
                else:
                    session.show(result, table(output, getattr(result, items)) if items else facts(output, result))

            self.command(name)(with_options(run))
            return function

        return add

    def sends(
        self,
        name: str,
        call: Callable[..., Call[Any]],
        output: AnswerText,
        text: str,
        arguments: Arguments = NO_ARGUMENTS,
        *,
        shown: AnswerPart = None,
        items: str = "",
    ) -> None:
        """Add a command that only sends a call; `text` is its help.

        It prints the answer as `shows` does. Arguments with a default (a pair with it) go by their names, others in
        their order.
        """
        parameters = [inspect.Parameter("session", inspect.Parameter.KEYWORD_ONLY, annotation=self._session)]
        for key, of in arguments.items():
            kind, default = of if isinstance(of, tuple) else (of, inspect.Parameter.empty)
            parameters.append(parameters[0].replace(name=key, annotation=kind, default=default))
        in_order = [key for key, of in arguments.items() if not isinstance(of, tuple | type)]

        def make_call(session: Session, page: PageOptions | None = None, **values: object) -> Call[Any]:
            names = [session.project] if self._of_project else []
            return call(*names, *map(values.pop, in_order), **values, **(page.query if page else {}))

        make_call.__doc__ = text
        make_call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # see inspect.signature
        self.shows(output, items=items, shown=shown, name=name)(make_call)


def with_options(function: Callable[..., T]) -> Callable[..., T]:
    """Replace option-set parameters by their options; those of the session come last."""
    own = inspect.signature(function).parameters
    kinds = {name: each.annotation for name, each in own.items() if isinstance(each.annotation, type)}
    makers = {name: kind.maker() for name, kind in kinds.items() if issubclass(kind, OptionSet)}
    options = {name: inspect.signature(maker).parameters for name, maker in makers.items()}

    @functools.wraps(function)
    def run(**values: Any) -> T:
        made = {name: maker(**{each: values.pop(each) for each in options[name]}) for name, maker in makers.items()}
        session = next((each for each in made.values() if isinstance(each, Session)), None)
        if session is None:
            return function(**made, **values)
        with session.client, _telling_of_no_token(session):
            return function(**made, **values)

    # Typer reads the signature, so it must list the real parameters.
    in_order = sorted(own, key=lambda name: name in makers and issubclass(kinds[name], Session))
    parameters = [each for name in in_order for each in options.get(name, {name: own[name]}).values()]
    keyword_only = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    run.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]  # see inspect.signature
    return run


def table(shown: Columns, items: Iterable[Any]) -> str:
    """Format items as a table."""
    return columns(tuple(shown), [list(facts(shown, each).values()) for each in items])


def named(*attributes: str) -> dict[str, str]:
    """Return attributes as fields under their own names; `created_on` is "created"."""
    return {each.removesuffix("_on").replace("_", " "): each for each in attributes}


def columns_of(shown: Columns, *names: str) -> dict[str, str | Callable[[Any], object]]:
    """Return some fields of an item as columns of a list, under headers in capitals."""
    return {name.upper(): shown[name] for name in names}


def facts(shown: Columns, item: Any) -> dict[str, str]:
    """Return the shown fields of an item, by header or name."""
    return {name: cell(getattr(item, of) if isinstance(of, str) else of(item)) for name, of in shown.items()}


@contextmanager
def deleting(name: str, delete: Callable[[], object]) -> Iterator[None]:
    """Delete at the end what the command made; note its name if that fails."""
    try:
        yield
    finally:
        try:
            delete()
        except ClientError as error:
            note(f"{name} is left behind: {error.message}")


def _note_retry(error: ClientError, sent: int, _pause: float) -> None:
    if sent == 1:
        note(f"{error.message}; trying again for {PATIENCE.total:.0f} seconds")


@contextmanager
def _telling_of_no_token(session: Session) -> Iterator[None]:
    try:
        yield
    except NotAuthenticated as error:
        if not session.at.token and not session.at.bearer:
            raise NotAuthenticated(session.anonymous, error.code, error.status) from error
        if not session.at.login_from or not error.message.startswith(("Unauthorized", "The token")):
            raise  # an unverified endpoint, which is a 401 too
        reason = "is unknown, or has no role here" if error.message == "Unauthorized" else "was refused"
        text = f"{error.message} (the token of {session.at.login_from} {reason})"
        raise NotAuthenticated(text, error.code, error.status) from error
