"""`ams apply`: makes the service hold what files declare (docs/reference/apply.md)."""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TextIO

import typer

from ams.cli.arguments import option
from ams.cli.command import Session, with_options
from ams.cli.exit_codes import Usage, file_named
from ams.cli.output import document, emit, note, printable
from ams.cli.secret_file import secret_file
from ams.client import wire
from ams.client.connection import SettingsSource, authn_connection
from ams.core.settings import environment
from ams.provisioning.declarations import Ask, Declared, ResourceKind, Step, StepSign
from ams.provisioning.document import TOKEN_FILE, read_documents
from ams.provisioning.execution import both, carry_out, secrets
from ams.provisioning.plan import PlanOptions, plan, read_existing


@with_options
def apply(
    session: Session,
    file: Annotated[
        list[str], option("What to declare; - is standard input; repeatable.", "--file", "-f", metavar="FILE")
    ],
    dry_run: Annotated[bool, option("Show the plan, change nothing.", "--dry-run")] = False,
    yes: Annotated[bool, option("Do not ask.", "--yes", "-y")] = False,
    prune: Annotated[bool, option("Remove what is not declared, where sections are.", "--prune")] = False,
    tokens: Annotated[str | None, option("Add tokens of new users to it; yours alone.", metavar="FILE")] = None,
    show_tokens: Annotated[bool, option("Write tokens of new users to stdout.", "--show-tokens")] = False,
    set_secrets: Annotated[
        bool, option("Set secrets of auth methods and issuers again; AMS cannot compare them.", "--set-secrets")
    ] = False,
    renew_tokens: Annotated[
        bool, option("Revoke tokens whose end or rights differ, and make them anew.", "--renew-tokens")
    ] = False,
    authn_endpoint: Annotated[
        str | None, option("Certificate service, for files that concern it (AMS_AUTHN_ENDPOINT).")
    ] = None,
    authn_key_file: Annotated[
        str | None, option("File of its management key (AMS_AUTHN_KEY_FILE).", metavar="FILE")
    ] = None,
) -> None:
    """Make the service hold what files declare: shows the plan, asks for confirmation, and applies it.

    Applied again, there is nothing to do. Service types and bindings are made on the certificate service.
    """
    declared = read_documents(file)
    named = SettingsSource(authn_endpoint=authn_endpoint, authn_key_file=authn_key_file)
    with _services(session, declared, named) as ask:

        def make_plan(sets_secrets: bool = False) -> list[Step]:
            # Secrets are set once: they cannot be read and compared.
            return plan(declared, read_existing(declared, ask), PlanOptions(prune, sets_secrets, renew_tokens))

        steps = make_plan(set_secrets)
        for lost in lost_tokens(declared, steps):
            note(printable(lost))
        if not session.for_programs:
            emit("\n".join(lines(steps)) or "nothing to do")
        made: dict[str, str] = {}
        if steps and not dry_run:
            if not yes:
                _confirm(session)
            _check_secrets(steps)
            people = [each for each in steps if each.key.kind in (ResourceKind.USER, ResourceKind.MEMBER)]
            makes_users = any(each.change is StepSign.ADD for each in people)
            with tokens_to(tokens if makes_users else None) as kept:
                carry_out(steps, ask, kept, make_plan, lambda text: note(printable(text)))
            made = kept.made
    if session.for_programs:
        shown = [{"change": step.change, **step.key._asdict(), "fields": step.fields} for step in steps]
        emit(document({"steps": shown, "applied": not dry_run} | ({"tokens": made} if show_tokens else {})))
    elif show_tokens:
        for user, token in made.items():
            emit(f"{user} {token}")
    if made and not (tokens or show_tokens):
        remedy = "a service_admin gives new ones: ams admin tokens refresh USER"
        note(f"tokens of {', '.join(made)} were not kept; {remedy}")


def lines(steps: Sequence[Step]) -> Iterator[str]:
    """Yield a plan as lines for people."""
    for step in steps:
        said = ", ".join(f"{name} {_short(value)}" for name, value in step.fields.items())
        yield printable(f"{step.change} {step.key}" + (f": {said}" if said else ""))


def lost_tokens(declared: Declared, steps: Sequence[Step]) -> Iterator[str]:
    """Yield a warning for each existing named token without a file here: lost, or kept on another machine."""
    made = {step.key for step in steps}
    for key, fields in declared.fields.items():
        if key.kind is ResourceKind.TOKEN and key not in made and not os.path.exists(fields[TOKEN_FILE]):
            path = fields[TOKEN_FILE]
            remedy = f"ams token revoke {key.name} --user {key.project}, and apply again"
            yield f"{key} was made before, and {path} is not here; if it is lost: {remedy}"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{...}" if value else "none"
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    return str(value) if value != "" else "none"


def _confirm(session: Session) -> None:
    if session.for_programs or not sys.stdin.isatty():
        raise Usage("there is something to do: give --yes to do it, or --dry-run to see it only")
    typer.confirm("do it?", abort=True, err=True)


def _check_secrets(steps: Sequence[Step]) -> None:
    """Raise errors of reading secrets, and of files for tokens, before any change."""
    for step in steps:
        secrets(step.fields)
        if TOKEN_FILE in step.fields:
            with secret_file(step.fields[TOKEN_FILE]):
                pass


@contextmanager
def _services(session: Session, declared: Declared, named: SettingsSource) -> Iterator[Ask]:
    """Yield the client of both services; the certificate service is contacted only for files that concern it."""
    if not declared.concerns_authn:
        yield session.call
        return
    found = authn_connection(named, session.profile, environment())
    with found.client() as certificates:
        yield both(session.call, certificates.call)


class KeptTokens:
    """Stores tokens of new users, in a file or to show them; named tokens go to their own files."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self.made: dict[str, str] = {}  # names and tokens of new users

    def keep(self, user: wire.User) -> None:
        """Keep a token."""
        self.made[user.name] = user.token
        if self._file:
            print(user.name, user.token, file=self._file, flush=True)

    file = staticmethod(secret_file)  # of a named token, opened before it is made


@contextmanager
def tokens_to(path: str | None) -> Iterator[KeptTokens]:
    """Open the file for tokens before any change. Raises `Usage` if others could read it."""
    if path is None:
        yield KeptTokens(None)
        return
    with file_named(path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open(handle, "a", encoding="ascii") as file:
        if stat.S_IMODE(os.fstat(handle).st_mode) & 0o077:
            raise Usage(f"{path} can be read by others; make it yours alone: chmod 600")
        yield KeptTokens(file)
