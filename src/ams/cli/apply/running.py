"""Carries out a plan, and keeps the tokens of users made on the way."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from ams.cli.apply.calls import calls
from ams.cli.apply.logins import TOKEN_FILE, new_token
from ams.cli.apply.plan import Change, Step
from ams.cli.apply.resources import Kind
from ams.cli.apply.state import Ask
from ams.cli.exits import Usage
from ams.cli.output import note, printable
from ams.cli.secret_file import secret_file
from ams.client import wire
from ams.client.errors import AlreadyExists, ClientError, Conflict, NotFound
from ams.client.wire import Call

ROUNDS = 4
"""How often a plan is made at most while somebody else changes the same."""


class Tokens:
    """Where the tokens of new users go: to a file, to be shown, or nowhere."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self.made: dict[str, str] = {}
        """Names of users that were made, and their tokens."""

    def keep(self, user: wire.User) -> None:
        """Keep a token at once, so that it is not lost when a later step fails."""
        self.made[user.name] = user.token
        if self._file:
            self._file.write(f"{user.name} {user.token}\n")
            self._file.flush()


@contextmanager
def tokens_to(path: str | None) -> Iterator[Tokens]:
    """Open the file that gets tokens, before anything is changed; raise `Usage` if others could read it."""
    if path is None:
        yield Tokens(None)
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise Usage(f"{path}: {error.strerror}") from error
    with open(handle, "a", encoding="ascii") as file:
        if stat.S_IMODE(os.fstat(handle).st_mode) & 0o077:
            raise Usage(f"{path} can be read by others; make it yours alone: chmod 600")
        yield Tokens(file)


class _Counted:
    """Asks, and counts what was answered: a step of which a call was has changed something."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.answered = 0

    def look(self, call: Call[Any]) -> Any:
        """Ask what changes nothing."""
        return self._ask(call)

    def __call__(self, call: Call[Any]) -> Any:
        answer = self._ask(call)
        self.answered += 1
        return answer


def carry_out(steps: Sequence[Step], ask: Ask, tokens: Tokens, plan_again: Callable[[], Sequence[Step]]) -> None:
    """Carry out steps in order; when one fails, say which are half done or not done, and raise its `ClientError`.

    Run again, the plan holds what is left. What somebody else made or removed at the same time does not end it: the
    rest is done, and then what still differs.
    """
    for _ in range(ROUNDS):
        if _all_done(steps, ask, tokens):
            return
        steps = plan_again()
    if steps:
        raise Usage("somebody else changes the same resources again and again: run it again when that has ended")


def _all_done(steps: Sequence[Step], ask: Ask, tokens: Tokens) -> bool:
    """Carry out steps; return False if somebody else was faster with one."""
    alone = True
    for number, step in enumerate(steps):
        counted = _Counted(ask)
        try:
            _carry_out(step, counted, tokens)
        except _Overtaken:
            alone = False
            note(f"done by somebody else: {step.change} {printable(str(step.key))}")
            continue
        except ClientError:
            note(f"{'half' if counted.answered else 'not'} done: {step.change} {printable(str(step.key))}")
            for left in steps[number + 1 :]:
                note(f"not done: {left.change} {printable(str(left.key))}")
            raise
        note(f"done: {step.change} {printable(str(step.key))}")
    return alone


class _Overtaken(Exception):
    """Somebody else made what was to be made, or removed what was to be removed."""


def _carry_out(step: Step, ask: _Counted, tokens: Tokens) -> None:
    try:
        _make(step, ask, tokens)
    except AlreadyExists as error:
        if not _is_there(step, ask):
            raise
        raise _Overtaken from error
    except NotFound as error:
        if step.change is Change.REMOVE:
            raise _Overtaken from error
        raise


def _is_there(step: Step, ask: _Counted) -> bool:
    """Whether what was to be made is there now: else it is an identity or a URL that another one has."""
    found: Any
    if step.key.kind is Kind.IDENTITY:
        found = ask.look(wire.list_bindings(step.key.project)).bindings
    elif step.key.kind is Kind.ISSUER:
        found = ask.look(wire.list_issuers()).issuers
    else:
        return True
    return any(each.name == step.key.name for each in found)


def _make(step: Step, ask: Ask, tokens: Tokens) -> None:
    if step.change is Change.ADD and step.key.kind is Kind.USER:
        tokens.keep(ask(wire.create_user(step.key.name, wire.UserDetails(**step.fields))))
    elif step.change is Change.ADD and step.key.kind is Kind.MEMBER:
        _join(step, ask, tokens)
    elif step.change is not Change.REMOVE and step.key.kind is Kind.TOKEN:
        _new_token(step, ask)
    else:
        sending = calls(step)
        with suppress(StopIteration):
            call = next(sending)
            while True:
                call = sending.send(ask(call))


def _new_token(step: Step, ask: Ask) -> None:
    """Make a token, in place of one that is there when it is to be altered, and keep it where the files say."""
    user, name = step.key.project, step.key.name
    call = new_token(user, name, step.fields)
    with secret_file(step.fields[TOKEN_FILE]) as keep:
        if step.change is Change.ALTER:
            # That the name is taken is the last thing the service looks for: what is wrong with the token it says now,
            # while the one that is in use is still good.
            with suppress(Conflict):
                keep(ask(call).token)
                return
            with suppress(NotFound):  # revoked by somebody else
                ask(wire.revoke_token(user, name))
        keep(ask(call).token)


def _join(step: Step, ask: Ask, tokens: Tokens) -> None:
    """Make a user a member; one whom the service does not know yet is made. A project_admin may do both."""
    project, user, roles = step.key.project, step.key.name, step.fields["roles"]
    try:
        ask(wire.add_member(project, user, roles))
    except NotFound:
        _join_new(project, user, roles, ask, tokens)
    except Conflict as error:  # a member already
        raise _Overtaken from error


def _join_new(project: str, user: str, roles: Sequence[str], ask: Ask, tokens: Tokens) -> None:
    try:
        tokens.keep(ask(wire.create_member(project, user, roles)))
    except AlreadyExists as error:
        # Made by somebody else, who need not have made a member: what comes next may need one.
        with suppress(Conflict):
            ask(wire.add_member(project, user, roles))
        raise _Overtaken from error
