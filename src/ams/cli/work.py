"""`ams work`: a program for each message of a parallel subscription."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Annotated

from ams.cli.arguments import SubscriptionName, argument, option
from ams.cli.command import PATIENCE, Session, with_options
from ams.cli.exit_codes import Usage
from ams.cli.messages import publish_time_of, saying_of_push
from ams.cli.output import emit, json_line, note, printable, short_name
from ams.cli.times import seconds_of
from ams.client import ReceivedMessage, RetryLater, wire
from ams.client.errors import ClientError, Conflict
from ams.client.messages import MAX_DELAY
from ams.core.parallel_options import PARALLEL

RETRY_CODE = 75  # EX_TEMPFAIL: the program wants the message again later
_ATTRIBUTE = "AMS_ATTRIBUTE_"
_OWN = ("AMS_MESSAGE_ID", "AMS_PUBLISH_TIME", "AMS_ORDERING_KEY", "AMS_DELIVERY_ATTEMPT")


@with_options
def work(
    session: Session,
    subscription: SubscriptionName,
    command: Annotated[list[str], argument("-- COMMAND", "Program, and its arguments.")],
    concurrency: Annotated[int, option("Programs that run at a time.", min=1)] = 1,
    time_limit: Annotated[str, option("How long a program may run, such as 10m; then it is killed.")] = "",
    retry_after: Annotated[str, option(f"After how long a message comes again at exit code {RETRY_CODE}.")] = "60s",
    max_lease: Annotated[str, option("How long a message is kept for a program that still runs.")] = "1h",
    max_messages: Annotated[int | None, option("End after so many messages.", min=1)] = None,
    exit_when_empty: Annotated[bool, option("End when there is nothing more: for cron.", "--exit-when-empty")] = False,
    grace: Annotated[str, option("How long programs may go on at SIGTERM or Ctrl-C.")] = "30s",
) -> None:
    """Run a program for each message of a parallel subscription, until SIGTERM or Ctrl-C.

    It gets the data on standard input and the rest in its environment. At exit code 0 the message is acknowledged.
    """
    limit = _seconds(time_limit, "--time-limit") if time_limit else None
    if limit is not None and not 0 < limit <= threading.TIMEOUT_MAX:
        raise Usage(f"--time-limit {time_limit!r} is not more than 0s")
    delay = _seconds(retry_after, "--retry-after")
    if delay > MAX_DELAY:
        raise Usage(f"--retry-after {retry_after!r} is more than {MAX_DELAY}s")
    programs = _Programs(command, limit, delay, for_programs=session.for_programs)
    lease, seconds = _seconds(max_lease, "--max-lease"), _seconds(grace, "--grace")
    if shutil.which(command[0]) is None:
        raise Usage(f"there is no program {command[0]!r}")
    with saying_of_push(session, subscription):
        found = session.patient.call(wire.get_subscription(session.project, subscription))
        if found.type != PARALLEL:
            raise Conflict(
                f"{subscription} is an ordered subscription, whose messages are for one consumer, one after the other;"
                f" make a parallel one beside it: ams subs create {subscription}-work {short_name(found.topic)}"
                " --type parallel"
            )
        note(f"working on {subscription}, {concurrency} at a time; Ctrl-C ends")
        try:
            done = session.client.with_retry(PATIENCE, _note_retry).work(
                subscription, programs.run, project=session.project, concurrency=concurrency, prefetch=0,
                max_lease=lease, grace=seconds, max_messages=max_messages, until_empty=exit_when_empty,
            )  # fmt: skip
        finally:
            programs.kill()
    if session.for_programs:
        emit(json_line(done))
    else:
        note(f"worked {done.worked}, failed {done.failed}, late {done.late}, given back {done.given_back}")


def _note_retry(error: ClientError, sent: int, _pause: float) -> None:
    if sent == 1:
        note(f"{error.message}; trying again until it is there")


def _seconds(text: str, name: str) -> float:
    return seconds_of(text, f"{name} {text!r} is no duration such as 30s, 10m or 1h")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a program and its process group, unless it has ended."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class _Programs:
    """Runs a program for each message; used by several threads."""

    def __init__(self, command: Sequence[str], limit: float | None, delay: float, *, for_programs: bool) -> None:
        self._command = command
        self._limit = limit
        self._delay = delay
        self._output = sys.stderr if for_programs else None
        """Output of the programs; None: ours."""
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_over = False

    def run(self, message: ReceivedMessage) -> None:
        try:
            code = self._exit_code(message)
        except OSError as error:
            note(printable(f"message {message.id}: {self._command[0]}: {error.strerror}"))
            raise RetryLater from error
        if code == RETRY_CODE:
            note(f"message {message.id}: exit code {code}, again in {self._delay:g} seconds")
            raise RetryLater(self._delay)
        if code != 0:
            if not self._is_over:  # programs killed at the end count as given back
                note(f"message {message.id}: " + (f"exit code {code}" if code > 0 else f"ended by signal {-code}"))
            raise RetryLater

    def kill(self) -> None:
        with self._lock:
            self._is_over = True
            for each in self._running:
                _kill(each)

    def _exit_code(self, message: ReceivedMessage) -> int:
        # A file, not a pipe: a program need not read it, and may read it again.
        with tempfile.TemporaryFile() as data:
            data.write(message.data)
            data.seek(0)
            running = self._start(message, data)

        def end_late() -> None:
            if running.poll() is None:
                note(f"message {message.id}: killed after {self._limit:g} seconds")
                _kill(running)

        timer = threading.Timer(self._limit or 0, end_late)
        if self._limit is not None:
            timer.start()
        try:
            return running.wait()
        finally:
            timer.cancel()
            with self._lock:
                self._running.discard(running)

    def _start(self, message: ReceivedMessage, data: IO[bytes]) -> "subprocess.Popen[bytes]":
        """Start the program in a process group of its own."""
        with self._lock:
            if self._is_over:
                raise RetryLater
            running = subprocess.Popen(  # noqa: S603  # what the user named, without a shell
                self._command,
                stdin=data,
                stdout=self._output,
                env=environment_of(message, os.environ),
                start_new_session=True,
            )
            self._running.add(running)
        return running


def environment_of(message: ReceivedMessage, inherited: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return the program's environment: ours, and the fields of the message."""
    own = {name: value for name, value in inherited.items() if name not in _OWN and not name.startswith(_ATTRIBUTE)}
    for name in sorted(message.attributes, reverse=True):  # if two map to one variable, the first by name wins
        own[variable(name)] = message.attributes[name]
    own["AMS_MESSAGE_ID"] = message.id
    own["AMS_PUBLISH_TIME"] = publish_time_of(message)
    own["AMS_ORDERING_KEY"] = message.ordering_key
    own["AMS_DELIVERY_ATTEMPT"] = str(message.delivery_attempt or 1)
    # A value cannot hold a NUL.
    return {os.fsencode(name): text.replace("\0", "").encode("utf-8", "surrogateescape") for name, text in own.items()}


def variable(attribute: str) -> str:
    """Return the variable of an attribute: upper case, invalid characters as underscores."""
    return _ATTRIBUTE + re.sub("[^A-Za-z0-9_]", "_", attribute).upper()
