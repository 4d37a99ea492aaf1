"""Shell completion: the script for a shell, and names completed from the service.

A shell calls it on each press of a key: names come within `SECONDS` or not at all, and no error is shown.
"""

import contextlib
import inspect
import io
import os
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ams.cli.output import short_name
from ams.client import wire
from ams.client.wire import Call

if TYPE_CHECKING:
    from ams.cli.command import Session

SECONDS = 1.0
NAMES = 200
"""The newest names a shell is offered; more would not help a reader."""

Complete = Callable[[typer.Context, str], list[str]]


class Shell(StrEnum):
    """Shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the script that completes commands, options and names in a shell.

    For bash: `source <(ams completion bash)`, once, or in ~/.bashrc.
    """
    from ams.cli.main import COMPLETE_VARIABLE, program

    os.environ[COMPLETE_VARIABLE] = f"source_{shell}"
    try:
        program([])(args=[], prog_name="ams")
    finally:
        del os.environ[COMPLETE_VARIABLE]


def names_of(
    items: str, ask: Callable[[Any, typer.Context], Call[Any]], session_of: Callable[..., "Session"] | None = None
) -> Complete:
    """Return what completes a name, for those who may list the `items` that the call answers.

    `session_of` makes the session of the options on the line; that of client commands unless another is named.
    """

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        # On any error a shell must not write it into the line its user is typing.
        with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
            with _session(context, session_of) as session:
                found = session.call(ask(session, context))
            names = [short_name(each.name) for each in getattr(found, items)]
            return [name for name in names if name.startswith(incomplete)]
        return []

    return complete


@contextlib.contextmanager
def _session(context: typer.Context, session_of: Callable[..., "Session"] | None) -> Iterator["Session"]:
    from ams.cli.command import Session

    make = session_of or Session.maker()
    given = {name: context.params[name] for name in inspect.signature(make).parameters if name in context.params}
    session = make(**{**given, "timeout": SECONDS})
    with session.client:
        yield session


def _user(session: "Session", context: typer.Context) -> str:
    """Return the user of --user, or the one whose token it is."""
    return context.params.get("user") or session.call(wire.get_profile()).name


project_names = names_of("projects", lambda *_: wire.list_projects())
user_names = names_of("users", lambda *_: wire.list_users(page_size=NAMES))
issuer_names = names_of("issuers", lambda *_: wire.list_issuers())
token_names = names_of("tokens", lambda session, context: wire.list_tokens(_user(session, context)))
binding_names = names_of("bindings", lambda session, context: wire.list_bindings(_user(session, context)))
member_names = names_of("users", lambda session, _: wire.list_members(session.chosen_project or "", page_size=NAMES))
topic_names = names_of("topics", lambda session, _: wire.list_topics(session.chosen_project or "", page_size=NAMES))
snapshot_names = names_of(
    "snapshots", lambda session, _: wire.list_snapshots(session.chosen_project or "", page_size=NAMES)
)
schema_names = names_of("schemas", lambda session, _: wire.list_schemas(session.chosen_project or ""))
subscription_names = names_of(
    "subscriptions", lambda session, _: wire.list_subscriptions(session.chosen_project or "", page_size=NAMES)
)


def resource_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a topic or a subscription of the project as access lists name them."""
    kind, separator, name = incomplete.partition("/")
    if not separator:
        return [each for each in ("topics/", "subs/") if each.startswith(incomplete)]
    names = topic_names if kind == "topics" else subscription_names
    return [f"{kind}/{each}" for each in names(context, name)]
