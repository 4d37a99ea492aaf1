"""One node of a cluster: `ams serve` as a process of its own, on fixed ports, that can be killed and started again."""

import contextlib
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from local_cluster.ports import LOOPBACK, free_port
from local_cluster.processes import Process

START_SECONDS = 60.0
DRAIN_SECONDS = 2.0
"""Seconds a node serves on after SIGTERM; haproxy notices within one."""
STOP_SECONDS = 15.0 + DRAIN_SECONDS
PROGRAM = "ams.cli.main"
ROOT = Path(__file__).parents[1]


class Node:
    """A node: its data folder in `folder/NAME`, its log in `folder/NAME.log`.

    `settings` of the service, by name, are passed in the environment, as lists of processes show arguments.
    `clock_off`: error of its time of day in seconds; without an error, `program` is the module that runs.
    """

    def __init__(
        self, name: str, folder: Path, settings: Mapping[str, str], *, clock_off: float = 0.0, program: str = PROGRAM
    ) -> None:
        self.name = name
        self._program = program
        self.data = folder.absolute() / name
        self.port, self.ops_port, self.pubsub_port = free_port(), free_port(), free_port()
        self.process = Process(name, self._command(clock_off), folder.absolute() / f"{name}.log")
        self.set(settings)

    @property
    def url(self) -> str:
        """Return the base URL of the API."""
        scheme = "https" if "AMS_CERT" in self.process.environment else "http"
        return f"{scheme}://{LOOPBACK}:{self.port}"

    @property
    def token_file(self) -> Path:
        """Return the file of the administrator's token, if this node made the first administrator."""
        return self.data / "admin.token"

    def set(self, settings: Mapping[str, str]) -> None:
        """Choose the settings for the next start."""
        chosen = {
            "data": str(self.data),
            "host": LOOPBACK,
            "port": str(self.port),
            "ops_port": str(self.ops_port),
            "pubsub_port": str(self.pubsub_port),
            "trusted_proxies": LOOPBACK,
            "drain_seconds": f"{DRAIN_SECONDS:g}s",
            **settings,
        }
        chosen.setdefault("node_url", f"{'https' if 'cert' in chosen else 'http'}://{chosen['host']}:{self.port}")
        variables = {f"AMS_{name.upper()}": value for name, value in chosen.items()}
        self.process.environment = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": f"{ROOT}/src:{ROOT}", **variables}

    def set_clock(self, off: float) -> None:
        """Set the error of its time of day, in seconds, for the next start."""
        self.process.command = self._command(off)

    def start(self) -> None:
        """Start it and return when it accepts requests. Raises `DidNotStart`."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start it and do not wait."""
        self.process.start()

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until it accepts requests. Raises `DidNotStart`."""
        self.process.wait_until(self.ready, seconds)

    def ready(self) -> bool:
        """Return whether `/readyz` is 200."""
        with contextlib.suppress(OSError):
            return self.operation("readyz")[0] == 200
        return False

    def operation(self, path: str) -> tuple[int, str]:
        """Return status and body of a page of the operations port; raises `OSError` without an answer."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _AnyStatus())
        with opener.open(f"http://{LOOPBACK}:{self.ops_port}/{path}", timeout=2) as answer:
            return answer.status, answer.read().decode()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()

    def freeze(self) -> None:
        """Stop it without ending it."""
        self.process.freeze()

    def thaw(self) -> None:
        """Let it go on."""
        self.process.thaw()

    def drain(self) -> int | None:
        """Stop it in order: it refuses new requests and finishes others. Return its exit code."""
        return self.process.stop(STOP_SECONDS)

    def _command(self, clock_off: float) -> list[str]:
        if clock_off:
            return [sys.executable, "-m", "local_cluster.off_clock", f"{clock_off:g}"]
        return [sys.executable, "-m", self._program, "serve"]


class _AnyStatus(urllib.request.HTTPErrorProcessor):
    """Returns answers of every status without raising."""

    def http_response(self, request: object, response: object) -> object:
        """Return the answer."""
        return response
