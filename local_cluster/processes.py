"""Child processes that can be killed, frozen and restarted, and that never outlive their parent.

Also a base of things to start and stop, and the signals that stop a program.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import NoReturn, Self

CHECK_SECONDS = 0.02
"""Seconds between two checks of a condition."""
LAST_LINES = 15
INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals of Ctrl-C, `kill`, and a closed terminal."""


class DidNotStart(Exception):
    """A part ended before it was ready or took too long; the text has the last lines of its log."""


class Startable(ABC):
    """Base of things that start and stop: use it as a context, or call `start` and `stop`."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and return when it serves."""

    @abstractmethod
    def stop(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Process:
    """One program: its command, its log file, and its running process if there is one.

    `user` it runs as, if not our own; `environment` is added to ours at the next start. The log has the output of every
    start.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._user = user
        self.environment = dict(environment or {})
        self._stop_signal = stop_signal
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._watched = False

    @property
    def pid(self) -> int:
        """Return the id of the running process. Raises `ProcessLookupError` if there is none."""
        if self._process is None:
            raise ProcessLookupError(f"{self.name} does not run")
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether the process runs (a frozen one does)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the program in a session of its own, so that a Ctrl-C in the terminal does not reach it."""
        assert not self.alive, f"{self.name} runs already"
        if self._process is not None:
            self._wait()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
                user=self._user,
                group=self._user,
                extra_groups=[] if self._user else None,
                env={**os.environ, **self.environment},
            )
        _reaper.watch(self._process.pid)
        self._watched = True

    def wait_said(self, words: str, seconds: float) -> None:
        """Wait until the log has these words since the last start. Raises `DidNotStart` like `wait_until`."""
        self.wait_until(lambda: self.has_printed(words), seconds)

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready`. Raises `DidNotStart` if the process ends first or takes longer."""
        give_up = time.monotonic() + seconds
        while not ready():
            if not self.alive:
                raise DidNotStart(f"{self.name} ended before it was ready:\n{self.last_lines()}")
            if time.monotonic() > give_up:
                raise DidNotStart(f"{self.name} was not ready after {seconds:.0f} seconds:\n{self.last_lines()}")
            time.sleep(CHECK_SECONDS)

    def has_printed(self, words: str) -> bool:
        """Return whether the log has these words since the last start."""
        return words.encode() in self._output()

    def last_lines(self) -> str:
        """Return the last lines of the log since the last start."""
        return "\n".join(self._output().decode(errors="replace").splitlines()[-LAST_LINES:])

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it and its children at once, as a power cut does."""
        if not self.alive:
            return
        self.send(signal.SIGSTOP)  # so that it starts no children meanwhile
        family = [self.pid, *descendants(self.pid)]
        for pid in family:
            _signal(pid, signal.SIGKILL)
        self._wait()
        wait_gone(family)

    def freeze(self) -> None:
        """Stop it and its children with SIGSTOP: they keep their connections and answer nothing.

        Returns when all their threads have stopped: one may run on for a moment and answer a request.
        """
        family = [self.pid, *descendants(self.pid)]
        for pid in family:
            _signal(pid, signal.SIGSTOP)
        wait_stopped(family)

    def thaw(self) -> None:
        """Continue it and its children."""
        for pid in [self.pid, *descendants(self.pid)]:
            _signal(pid, signal.SIGCONT)

    def stop(self, seconds: float = 15.0) -> int | None:
        """Ask it to end and wait; kill it after a timeout. Return its exit code, None if it did not run."""
        if self._process is None:
            return None
        if self.alive:
            self.send(self._stop_signal)
            self.send(signal.SIGCONT)
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._wait()

    def _wait(self) -> int:
        assert self._process is not None
        code = self._process.wait()
        if self._watched:
            _reaper.forget(self._process.pid)
            self._watched = False
        return code

    def _output(self) -> bytes:
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read()


def descendants(pid: int) -> list[int]:
    """Return the ids of the children of a process, and of theirs."""
    children: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as listed:
                children += map(int, listed.read().split())
    return [each for child in children for each in [child, *descendants(child)]]


def wait_gone(pids: Sequence[int], seconds: float = 5.0) -> None:
    """Wait until these processes are gone; zombies count as gone."""
    give_up = time.monotonic() + seconds
    while any(map(runs, pids)) and time.monotonic() < give_up:
        time.sleep(0.005)


def wait_stopped(pids: Sequence[int], seconds: float = 5.0) -> None:
    """Wait until each thread of these processes is stopped or gone."""
    give_up = time.monotonic() + seconds
    while not all(map(_is_stopped, pids)) and time.monotonic() < give_up:
        time.sleep(0.005)


def _is_stopped(pid: int) -> bool:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return all(_state(f"/proc/{pid}/task/{thread}/stat") in "TtZX" for thread in threads)


def _state(stat: str) -> str:
    """Return the state letter of a process or thread; X if it is gone."""
    try:
        with open(stat) as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def runs(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    return _state(f"/proc/{pid}/stat") not in "ZX"


def _signal(pid: int, number: signal.Signals) -> None:
    """Send a signal, unless the process has just ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class _Reaper:
    """A small shell process that kills our children when we are gone, even after SIGKILL.

    It reads `+ pid` and `- pid` from a pipe; the pipe's end means that this process has ended.
    (The kernel sends PR_SET_PDEATHSIG already when the starting THREAD ends, which is too early for us.)
    """

    SCRIPT = """
        pids=
        while read -r sign pid; do
            case $sign in
            +) pids="$pids $pid " ;;
            -) pids="${pids%%" $pid "*} ${pids#*" $pid "}" ;;
            esac
        done
        for pid in $pids; do kill -9 "-$pid" 2>/dev/null; done
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._owner = 0

    def watch(self, pid: int) -> None:
        """Kill a process and its group when we are gone."""
        self._tell(f"+ {pid}\n")

    def forget(self, pid: int) -> None:
        """Forget a process: it has ended, and its id may be reused."""
        self._tell(f"- {pid}\n")

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._pipe is None or self._owner != os.getpid():
                self._pipe = self._start()
                self._owner = os.getpid()
            os.write(self._pipe, line.encode())

    def _start(self) -> int:
        reading, writing = os.pipe()
        shell = subprocess.Popen(
            ["/bin/sh", "-c", self.SCRIPT],
            stdin=reading,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reading)
        shell.returncode = 0  # it outlives us: Python must not warn that nobody waits for it
        return writing


_reaper = _Reaper()


def treat_as_ctrl_c() -> None:
    """Let each of them raise `KeyboardInterrupt`, once: a second one must not interrupt the cleanup."""
    for number in INTERRUPTIONS:
        signal.signal(number, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    for number in INTERRUPTIONS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
