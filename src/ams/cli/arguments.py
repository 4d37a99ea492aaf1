"""Shared arguments and options, and shell completion.

Names are completed from the service: within `COMPLETION_SECONDS` or not at all, and no error is shown.
"""

import contextlib
import inspect
import io
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ams.cli.exit_codes import Usage
from ams.cli.output import Format, short_name
from ams.cli.times import retention_seconds
from ams.client import wire
from ams.client.wire import Call

if TYPE_CHECKING:
    from ams.cli.command import Session

COMPLETION_SECONDS = 1.0
MAX_NAMES = 200  # newest names offered to a shell

Arguments = dict[str, Any]  # arguments and options of a command: annotations by name, or pairs with a default
Complete = Callable[[typer.Context, str], list[str]]
Texts = list[str] | None  # values of a repeatable argument or option; None: absent
Shell = Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]


def completion(shell: Shell) -> None:
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
    """Return a completion function from the `items` of a list call; users without the right get none.

    `session_of` makes the session from the options on the line; default: that of client commands.
    """

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        # A shell must never write an error into the line that the user types.
        with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
            from ams.cli.command import Session

            make = session_of or Session.maker()
            options = inspect.signature(make).parameters.keys() & context.params.keys()
            session = make(**{**{key: context.params[key] for key in options}, "timeout": COMPLETION_SECONDS})
            with session.client:
                found = session.call(ask(session, context))
            names = [short_name(each.name) for each in getattr(found, items)]
            return [name for name in names if name.startswith(incomplete)]
        return []

    return complete


project_names = names_of("projects", lambda *_: wire.list_projects())
user_names = names_of("users", lambda *_: wire.list_users(page_size=MAX_NAMES))
issuer_names = names_of("issuers", lambda *_: wire.list_issuers())
token_names = names_of("tokens", lambda session, context: wire.list_tokens(session.owner(context.params.get("user"))))
binding_names = names_of(
    "bindings", lambda session, context: wire.list_bindings(session.owner(context.params.get("user")))
)
member_names = names_of("users", lambda session, _: wire.list_members(session.at.project or "", page_size=MAX_NAMES))
topic_names = names_of("topics", lambda session, _: wire.list_topics(session.at.project or "", page_size=MAX_NAMES))
snapshot_names = names_of(
    "snapshots", lambda session, _: wire.list_snapshots(session.at.project or "", page_size=MAX_NAMES)
)
schema_names = names_of("schemas", lambda session, _: wire.list_schemas(session.at.project or ""))
subscription_names = names_of(
    "subscriptions", lambda session, _: wire.list_subscriptions(session.at.project or "", page_size=MAX_NAMES)
)


def resource_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete topics/TOPIC or subs/SUB of the project."""
    kind, separator, name = incomplete.partition("/")
    if not separator:
        return [each for each in ("topics/", "subs/") if each.startswith(incomplete)]
    names = topic_names if kind == "topics" else subscription_names
    return [f"{kind}/{each}" for each in names(context, name)]


def argument(metavar: str, text: str, complete: Complete | None = None, **more: Any) -> Any:
    """Return a positional argument with its help, completed by `complete`; `more` are other arguments of Typer."""
    return typer.Argument(metavar=metavar, help=text, show_default=False, autocompletion=complete, **more)


def option(text: str, *names: str, complete: Complete | None = None, **more: Any) -> Any:
    """Return an option with its help and names; `more` are other arguments of Typer."""
    return typer.Option(*names, help=text, autocompletion=complete, **more)


ProjectName = Annotated[str, argument("PROJECT", "Name of the project.", project_names)]
TopicName = Annotated[str, argument("TOPIC", "Name of the topic.", topic_names)]
SubscriptionName = Annotated[str, argument("SUB", "Name of the subscription.", subscription_names)]
SchemaName = Annotated[str, argument("SCHEMA", "Name of the schema.", schema_names)]
UserName = Annotated[str, argument("USER", "Name of the user.", user_names)]
MemberName = Annotated[str, argument("USER", "Name of the member.", member_names)]
MemberNames = Annotated[list[str], argument("USER...", "Names of members.", member_names)]
Resource = Annotated[str, argument("RESOURCE", "topics/TOPIC or subs/SUB.", resource_names)]

NO_ARGUMENTS: Arguments = {}
PROJECT: Arguments = {"name": ProjectName}
TOPIC: Arguments = {"topic": TopicName}
SUBSCRIPTION: Arguments = {"subscription": SubscriptionName}
SCHEMA: Arguments = {"schema": SchemaName}
USER: Arguments = {"user": UserName}
MEMBER: Arguments = {"user": MemberName}
DURATION: Arguments = {  # the help says that it is text, the command gets seconds
    "seconds": Annotated[str, argument("DURATION", "Such as 7d or 12h, or default.", parser=retention_seconds)]
}

AttributePairs = Annotated[Texts, option("Attribute; may be repeated.", metavar="NAME=VALUE")]
DataFolder = Annotated[str, option("The data folder.", "--data", envvar="AMS_DATA")]  # its default is `DATA_FOLDER`
Output = Annotated[Format, option("For people or for programs.", "--output", "-o")]  # its default is `Format.TABLE`

DATA_FOLDER = "./ams-data"


def pairs(texts: Sequence[str] | None, name: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """Read the values of a repeatable option as pairs. Raises `Usage` for another form."""
    for each in texts or ():
        if "=" not in each:
            raise Usage(f"{name} {each!r} must look like {form}")
    return dict(each.split("=", 1) for each in texts or ())
