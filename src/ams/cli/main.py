"""The entry point: finds the command, loads only that one, and turns errors into one line and an exit code."""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from ams import __version__

COMPLETE_VARIABLE = "_AMS_COMPLETE"  # set by the completion script of a shell when it requests completions

EXIT_CODES = (
    "Exit codes: 0 done, 1 refused, 2 usage, 3 not allowed, 4 not found, 5 conflict, 6 unreachable, 7 unavailable: try"
    " again, 70 a fault of ams, 130 interrupted, 141 the reader of the output is gone."
)
"""`ams.cli.exit_codes.Exit` as help text, a literal: the overview must not load the errors."""


class CommandEntry(NamedTuple):
    """A command: its module, and its line in the overview."""

    target: str  # `module:name` of a Typer app or a function
    help: str


SERVICE_COMMANDS = {
    "serve": CommandEntry("ams.cli.serve:serve_command", "Run the service."),
    "push": CommandEntry("ams.cli.serve:push_command", "Deliver to push endpoints, for a service elsewhere."),
    "authn serve": CommandEntry("ams.cli.serve:authn_serve_command", "Run the certificate service."),
}
"""Commands whose options are settings: each target makes a click command."""

COMMANDS = {
    "check": CommandEntry("ams.cli.installation:check", "Verify a data folder and say what it holds."),
    "settings": CommandEntry("ams.cli.installation:settings", "List the settings of the service, or import others."),
    "backup": CommandEntry("ams.cli.installation:backup", "Copy a data folder, also while its service runs."),
    "restore": CommandEntry("ams.cli.installation:restore_command", "Make a data folder of a backup."),
    "export": CommandEntry("ams.cli.installation:export_command", "Write all a stopped service holds into a file."),
    "import": CommandEntry("ams.cli.installation:import_command", "Fill a new installation from an export."),
    "migrate": CommandEntry("ams.cli.migrate:app", "Move here from the reference implementation."),
    "projects": CommandEntry("ams.cli.projects:app", "Projects, which share topics and subscriptions."),
    "users": CommandEntry("ams.cli.users:app", "Users of the service."),
    "token": CommandEntry("ams.cli.tokens:app", "Named tokens: with an end and with rights of their own."),
    "bindings": CommandEntry("ams.cli.issuers:bindings", "Bindings: by which identities at issuers a user logs in."),
    "issuers": CommandEntry("ams.cli.issuers:app", "OpenID Connect issuers whose tokens are accepted."),
    "members": CommandEntry("ams.cli.users:members", "Members of the project, and their roles in it."),
    "registrations": CommandEntry("ams.cli.users:registrations", "Who asked to become a user, and what was decided."),
    "topics": CommandEntry("ams.cli.topics:app", "Topics, and who may publish to them."),
    "schemas": CommandEntry("ams.cli.schemas:app", "Schemas: what messages must be."),
    "subs": CommandEntry("ams.cli.subscriptions:app", "Subscriptions, where they stand, and who may consume."),
    "snapshots": CommandEntry("ams.cli.subscriptions:snapshots", "Snapshots of where parallel subscriptions stand."),
    "acl": CommandEntry("ams.cli.rights:app", "Access lists of topics and subscriptions."),
    "apply": CommandEntry("ams.cli.apply:apply", "Make the service hold what files declare."),
    "admin": CommandEntry("ams.cli.users:admin", "Tokens of users, and the key they are stored under."),
    "publish": CommandEntry("ams.cli.messages:publish", "Publish messages."),
    "pull": CommandEntry("ams.cli.messages:pull", "Get the next messages of a subscription."),
    "ack": CommandEntry("ams.cli.messages:ack", "Acknowledge pulled messages."),
    "work": CommandEntry("ams.cli.work:work", "Run a program for each message of a parallel subscription."),
    "tail": CommandEntry("ams.cli.messages:tail", "Follow a topic."),
    "dead": CommandEntry("ams.cli.dead_letters:app", "Dead letters: messages that an endpoint refused too often."),
    "provision": CommandEntry("ams.cli.provision:app", "Users, bindings and access lists of what GOCDB lists."),
    "authn": CommandEntry("ams.cli.authn:app", "The certificate service, and who logs in with what."),
    "audit": CommandEntry("ams.cli.audit:audit", "Show who did which change, and who failed to log in."),
    "doctor": CommandEntry("ams.cli.status:doctor", "Say why nothing arrives."),
    "top": CommandEntry("ams.cli.top:top", "Show topics and subscriptions while they work."),
    "open": CommandEntry("ams.cli.tokens:open_", "Open the console in a browser, logged in."),
    "bench": CommandEntry("ams.cli.bench:app", "Measure how fast a service is, from here."),
    "metrics": CommandEntry("ams.cli.status:metrics", "Counters of projects, topics and subscriptions, and usage."),
    "status": CommandEntry("ams.cli.status:status", "Show how the service is."),
    "version": CommandEntry("ams.cli.status:version", "Show the versions of this program and of the service."),
    "archive": CommandEntry("ams.cli.pipeline:archive", "Keep topics in a Delta table, without Spark."),
    "pipeline": CommandEntry("ams.cli.pipeline:app", "Jobs on Spark over the topics of a project."),
    "profile": CommandEntry("ams.cli.profiles:app", "Profiles: services to talk to, by name."),
    "completion": CommandEntry("ams.cli.arguments:completion", "Print the script that completes commands in a shell."),
}

ALIASES = {"topic": "topics", "sub": "subs", "profiles": "profile", "tokens": "token"}
"""Hidden aliases."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `ams` and exit with one of `ams.cli.exit_codes.Exit`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # always real files here
    try:
        sys.exit(_run_command(given))
    except Exception as error:
        from ams.cli.exit_codes import Exit, PipeClosed, exit_code, line
        from ams.cli.output import printable

        code = exit_code(error)
        if code is Exit.FAULT and os.environ.get("AMS_DEBUG"):
            raise error
        if type(error).__name__ == "NoArgsIsHelpError":  # click's or Typer's: no arguments, so print the help
            print(error, file=sys.stderr)
        elif not isinstance(error, PipeClosed):
            if context := getattr(error, "ctx", None):  # an error in the arguments
                print(context.get_usage(), file=sys.stderr)
            print(f"ams: {printable(line(error))}", file=sys.stderr)
        sys.exit(code)


def _run_command(arguments: list[str]) -> int:
    if arguments:
        arguments[0] = ALIASES.get(arguments[0], arguments[0])
    words = next((n for n in (2, 1) if " ".join(arguments[:n]) in SERVICE_COMMANDS), 0)
    if words:
        name = " ".join(arguments[:words])
        command = _import_entry(SERVICE_COMMANDS[name])()
        command.epilog = EXIT_CODES
        ended = command.main(args=arguments[words:], prog_name=f"ams {name}", standalone_mode=False)
    else:
        app = program(arguments or completed_words(os.environ))
        ended = app(args=arguments, prog_name="ams", standalone_mode=False)
    return ended if isinstance(ended, int) else 0


def completed_words(environment: Mapping[str, str]) -> list[str]:
    """Return the words to complete for a shell; empty without a request for completion."""
    if COMPLETE_VARIABLE not in environment:
        return []
    return (environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS") or "").split()[1:]


def program(arguments: Sequence[str]) -> typer.Typer:
    """Build the program and load only the command in `arguments`.

    Loading a command takes up to 0.1 s (HTTP client, engines); others should not pay for it.
    """
    completing = COMPLETE_VARIABLE in os.environ
    app = typer.Typer(name="ams", no_args_is_help=True, add_completion=completing, rich_markup_mode=None)
    app.callback(epilog=EXIT_CODES)(_overview)
    wanted = next((each for each in arguments if not each.startswith("-")), None)
    for name, entry in (SERVICE_COMMANDS | COMMANDS).items():
        if name == wanted and name in COMMANDS:
            target = _import_entry(entry)
            if isinstance(target, typer.Typer):
                _tell_exit_codes(target)
                app.add_typer(target, name=name, help=target.info.help or entry.help)
            else:
                app.command(name, epilog=EXIT_CODES)(target)
        elif " " not in name:
            app.command(name, help=entry.help)(_placeholder)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        print(f"ams {__version__}")
        raise typer.Exit


def _overview(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version of this program.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Publish and consume messages, and run the service that carries them."""


def _import_entry(entry: CommandEntry) -> Any:
    module, _, attribute = entry.target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _tell_exit_codes(app: typer.Typer) -> None:
    for command in app.registered_commands:
        command.epilog = EXIT_CODES
    for group in app.registered_groups:
        if group.typer_instance:
            _tell_exit_codes(group.typer_instance)


def _placeholder() -> None:
    """Stand in the overview for a command that is not loaded."""


if __name__ == "__main__":
    main()
