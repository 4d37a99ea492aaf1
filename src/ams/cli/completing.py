"""Shell completion: the script for a shell, and names completed from the service.

A shell asks on every press of a key: names come within `SECONDS` or not at all, and nothing that goes wrong is said.
"""

import contextlib
import io
import os
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer

from ams.cli.output import short_name
from ams.client import Client, wire
from ams.client.connection import connection
from ams.client.profiles import Source
from ams.client.wire import Call
from ams.core.settings import environment

SECONDS = 1.0
_CONNECTION = ("endpoint", "token", "token_file", "bearer_token_file", "project", "ca")
NAMES = 200
"""The newest names a shell is offered; more would not help a reader."""


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


def project_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a project, for those who may list them."""
    return _names(context, incomplete, lambda _project: wire.list_projects(), lambda found: found.projects)


def user_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a user, for those who may list them."""
    return _names(context, incomplete, lambda _project: wire.list_users(page_size=NAMES), lambda page: page.users)


def member_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a member of the project."""
    return _names(
        context, incomplete, lambda project: wire.list_members(project, page_size=NAMES), lambda page: page.users
    )


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a topic of the project."""
    return _names(
        context, incomplete, lambda project: wire.list_topics(project, page_size=NAMES), lambda page: page.topics
    )


def schema_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a schema of the project."""
    return _names(context, incomplete, wire.list_schemas, lambda found: found.schemas)


def subscription_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a subscription of the project."""
    return _names(
        context,
        incomplete,
        lambda project: wire.list_subscriptions(project, page_size=NAMES),
        lambda page: page.subscriptions,
    )


def resource_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a topic or a subscription of the project as access lists name them."""
    kind, separator, name = incomplete.partition("/")
    if not separator:
        return [each for each in ("topics/", "subs/") if each.startswith(incomplete)]
    names = topic_names if kind == "topics" else subscription_names
    return [f"{kind}/{each}" for each in names(context, name)]


def issuer_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of an issuer, for those who may list them."""
    return _names(context, incomplete, lambda _project: wire.list_issuers(), lambda found: found.issuers)


def token_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a named token, of the user of --user or of who asks."""
    return _offered(
        context, incomplete, lambda client, _project: client.call(wire.list_tokens(_user(context, client))).tokens
    )


def binding_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a binding of the user of --user."""
    return _offered(
        context, incomplete, lambda client, _project: client.call(wire.list_bindings(_user(context, client))).bindings
    )


def _user(context: typer.Context, client: Client) -> str:
    return context.params.get("user") or client.call(wire.get_profile()).name


def _names(
    context: typer.Context,
    incomplete: str,
    ask: Callable[[str], Call[Any]],
    items: Callable[[Any], Iterable[Any]],
) -> list[str]:
    return _offered(context, incomplete, lambda client, project: items(client.call(ask(project))))


def _offered(context: typer.Context, incomplete: str, find: Callable[[Client, str], Iterable[Any]]) -> list[str]:
    # Whatever goes wrong, a shell must not write it into the line its user is typing.
    with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
        given = context.params
        asked = Source(**{name: given.get(name) for name in _CONNECTION})
        found = connection(asked, given.get("profile"), environment())
        with Client(
            found.endpoint, found.token, bearer=found.bearer, ca=found.ca, timeout=SECONDS, retry=None
        ) as client:
            names = [short_name(each.name) for each in find(client, found.project or "")]
        return [name for name in names if name.startswith(incomplete)]
    return []
