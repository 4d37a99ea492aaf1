"""Processes of the bench: servers started and stopped by their pid, loads, and the kernel's figures about them."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from bench import kernel
from bench.load import Job, Outcome

T = TypeVar("T")

ROOT = Path(__file__).parent.parent
STOP_SECONDS = 30.0
READY_SECONDS = 120.0
PREPARE_SECONDS = 300.0
"""Limit of a load's time beside its measurement: connecting, and pulling the messages it will acknowledge."""


class Failed(Exception):
    """A process of the bench did not do its part; the text says which and what it said last."""


class Server:
    """A server process that printed `ready URL`; it is stopped at the end of a `with` block."""

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self.pubsub = ""
        """HOST:PORT of Google's Pub/Sub, where it is on."""
        self._command = command
        self._errors = errors
        started = time.perf_counter()
        with errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command], stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=ROOT
            )
        self.url = self._ready()
        self.seconds_to_ready = time.perf_counter() - started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the server, in order unless the signal is SIGKILL; that too if it takes longer than `STOP_SECONDS`."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> None:
        """End the server as a crash would."""
        self.stop(signal.SIGKILL)

    def anonymous_memory(self) -> int:
        return kernel.anonymous_memory(self.pid)

    def processor_seconds(self) -> float:
        return kernel.processor_seconds(self.pid)

    def _ready(self) -> str:
        assert self._process.stdout is not None
        too_late = threading.Timer(READY_SECONDS, self._process.kill)
        too_late.start()
        try:
            for line in self._process.stdout:
                if line.startswith("pubsub "):
                    self.pubsub = line.split()[1]
                if line.startswith("ready "):
                    return line.split()[1]
        finally:
            too_late.cancel()
        said = last_line(self._errors.read_text(errors="replace"))
        raise Failed(f"{self._command[0]} ended with {self._process.wait()}: {said}")


def last_line(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1] if lines else "it said nothing"


class Service(Server):
    """A running `ams serve` on a data folder, on free ports of loopback."""

    def __init__(self, data: Path, *flags: str) -> None:
        self.data = data
        errors = data.with_name(f"{data.name}.stderr")
        where = ["--data", str(data), "--host", "127.0.0.1", "--port", "0", "--ops-port", "0"]
        super().__init__(["ams.cli.main", "serve", *where, *flags], errors)
        self.token = (data / "admin.token").read_text().strip()

    def disk_usage(self) -> int:
        return sum(each.stat().st_size for each in self.data.rglob("*") if each.is_file())


def bare(folder: Path) -> Server:
    return Server(["bench.bare"], folder / "bare.stderr")


class RunningLoad:
    """A load that runs in the background."""

    def __init__(self, job: Job) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        self._patience = PREPARE_SECONDS + job.warm_up + job.seconds
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(job))
        self._process.stdin.close()
        self._process.stdin = None  # all is written; `communicate` must not write

    def outcome(self, *, needs_answers: bool = True) -> Outcome:
        """Wait for its end and return the result; raises `Failed`, also without any answer if it `needs_answers`."""
        try:
            out, errors = self._process.communicate(timeout=self._patience)
        except subprocess.TimeoutExpired:
            self.abandon()
            raise Failed(f"a load was not over after {self._patience:.0f} s") from None
        if self._process.returncode != 0:
            raise Failed(last_line(errors.decode(errors="replace")))
        outcome = msgspec.json.decode(out, type=Outcome)
        if needs_answers and outcome.requests == 0:
            raise Failed(f"no request was answered well; other answers by status: {outcome.refused}")
        return outcome

    def abandon(self) -> None:
        self._process.kill()
        self._process.communicate()


def answered(module: str, job: msgspec.Struct, answer: type[T], seconds: float) -> T:
    """Run a module that reads a job on stdin and writes an answer to stdout, within `seconds`; raises `Failed`."""
    run = subprocess.run(
        [sys.executable, "-m", module], input=msgspec.json.encode(job), capture_output=True, cwd=ROOT, timeout=seconds
    )
    if run.returncode:
        raise Failed(last_line(run.stderr.decode(errors="replace")))
    return msgspec.json.decode(run.stdout, type=answer)
