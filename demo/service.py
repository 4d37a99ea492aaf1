"""The service under a demo (`ams serve` as a child process), and the command line of demos that end by themselves."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from ams.client import Client
from ams.client.errors import ClientError

OK, FAILED, INTERRUPTED = 0, 1, 130
READY = "ready "  # prefix of the line that says the service is up; its base URL follows
PUBSUB_PORT = 8085  # port of Google's emulator, which goes with the default port of the service
PUBSUB = "pubsub "  # prefix of the line before it, with the address of Google's Pub/Sub
START_TIMEOUT = 60.0
"""Seconds until the service must be ready; a large data folder after a power cut is the slowest case."""
STOP_TIMEOUT = 15.0  # seconds after SIGTERM until a service must be gone; it promises 10

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that stop the demo: Ctrl-C, `kill`, and a terminal that is closed."""


ROOT = Path(__file__).parents[1]
PROGRAM_PATH = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
"""Environment of programs of this clone that run in other folders."""


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


class DidNotStart(Exception):
    """The service refused to start; the text is its last output, which says what to do."""


class Service(NamedTuple):
    url: str
    data: Path
    output: "Output"

    @property
    def pubsub(self) -> str:
        return self.output.pubsub

    @property
    def endpoint(self) -> str:
        return self.url.removeprefix("https://")

    @property
    def ca(self) -> Path:
        return self.data / "ca.pem"

    @property
    def token_file(self) -> Path:
        return self.data / "admin.token"

    @property
    def token(self) -> str:
        return self.token_file.read_text().strip()

    def administrator(self) -> Client:
        return Client(self.url, self.token, ca=str(self.ca))


class Output:
    """Output of the service: read all the time, so that it never blocks, and shown only on request."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._shown = False
        self.pubsub = ""  # address of Google's Pub/Sub; empty where that is off
        self._ready: SimpleQueue[str | None] = SimpleQueue()
        self._last: deque[str] = deque(maxlen=20)
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait_ready(self) -> str:
        """Return the base URL as soon as the service is ready; raise `DidNotStart` with its last line if it ends."""
        try:
            url = self._ready.get(timeout=START_TIMEOUT)
        except Empty:
            raise DidNotStart(f"the service was not ready after {START_TIMEOUT:.0f} seconds") from None
        if url is None:
            raise DidNotStart(self._last[-1] if self._last else "the service ended without a word")
        return url

    def show(self) -> None:
        self._shown = True
        self._thread.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._last.append(line.rstrip())
            if line.startswith(PUBSUB) and not self.pubsub:
                self.pubsub = line.split()[1]
            if line.startswith(READY):
                self._ready.put(line.removeprefix(READY).split()[0])
            elif self._shown:
                print(line, end="", flush=True)
        self._ready.put(None)


def stop_by_any_interruption() -> None:
    """Let all of `INTERRUPTIONS` end the demo as Ctrl-C does, so that it never leaves its service behind."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for each in INTERRUPTIONS:
        signal.signal(each, interrupt)


def trust_of_library(ca: Path) -> None:
    """Make the official library trust services of a CA of their own, and reach them directly, past any proxy."""
    os.environ["REQUESTS_CA_BUNDLE"] = str(ca)
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "localhost", "127.0.0.1"]))


@contextmanager
def running(data: Path, port: int, *more: str) -> Iterator[Service]:
    """Start the service on this folder and port, and stop it when the block is left, however it is left.

    The operations port is the next one; `more` are flags. Raises `DidNotStart`.
    """
    ops_port = port + 1 if port else 0
    with started("serve", data, port, "--tls-self-signed", "--ops-port", str(ops_port), *more) as service:
        yield service


@contextmanager
def started(command: str, data: Path, port: int, *more: str) -> Iterator[Service]:
    """Start what serves under a command of `ams`, and stop it when the block is left. Raises `DidNotStart`."""
    flags = ["--data", str(data), "--host", "127.0.0.1", "--port", str(port), *more]
    process = subprocess.Popen(  # noqa: S603 - our own program, our own flags
        python("ams.cli.main", *command.split(), *flags),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,  # a Ctrl-C in the terminal reaches the demo only, which stops the service when it is ready to
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    output = Output(process)
    try:
        yield Service(output.wait_ready(), data, output)
    finally:
        _stop(process)


def _stop(process: "subprocess.Popen[str]") -> None:
    """Tell the service to stop and wait for it; an impatient second Ctrl-C must not leave it behind."""
    handlers = [signal.signal(number, signal.SIG_IGN) for number in INTERRUPTIONS]
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for number, handler in zip(INTERRUPTIONS, handlers, strict=True):
        signal.signal(number, handler)


def run_demo(
    name: str,
    about: str,
    play: Callable[[Path, Any], bool],
    *failures: type[Exception],
    keeps_folder: bool = False,
    **options: int,
) -> int:
    """Run a demo; return 0 when all went well, 1 when not, 130 when it was interrupted."""
    parser = argparse.ArgumentParser(prog=f"python -m demo.{name}", description=about)
    parser.add_argument("--folder", type=Path, help="where all of it is written (default: a new temporary folder)")
    for option, default in options.items():
        if default is False:
            parser.add_argument(f"--{option}", action="store_true")
        else:
            parser.add_argument(f"--{option}", type=int, default=default, help="how many (default: %(default)s)")
    chosen = parser.parse_args()
    stop_by_any_interruption()
    folder = (chosen.folder or Path(tempfile.mkdtemp(prefix=f"ams-{name}-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    one_line: tuple[type[Exception], ...] = (ClientError, DidNotStart, *failures)
    try:
        status = OK if play(folder, chosen) else FAILED
    except one_line as failure:
        print(f"{name}-demo: {failure} (what was done is in {folder})", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"\nStopped; what was done is in {folder}.")
        return INTERRUPTED
    if status == OK and not chosen.folder and not keeps_folder:
        shutil.rmtree(folder, ignore_errors=True)
    return status
