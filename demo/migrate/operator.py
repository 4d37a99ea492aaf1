"""The operator of the migration: runs the commands that an administrator types.

Commands that stop the old service and start the new one create a file, in place of `systemctl` on a real machine. The
runner of the services acts on the file and removes it.
"""

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from demo.migrate.sides import Address, NewSide
from demo.service import PROGRAM_PATH, ROOT, python
from local_cluster.haproxy import MovingHaproxy

LOOK_SECONDS = 0.01
COMMAND_SECONDS = 900


class CommandFailed(Exception):
    """A command ended with an error; the text is what it said."""


class Operator:
    def __init__(self, old: Address, new: NewSide, proxy: MovingHaproxy, token: str, folder: Path) -> None:
        self._source = ["--mongodb", old.mongodb, "--kafka", old.kafka]
        self._target = ["--data", str(new.data), "--config", str(new.config)]
        self._proxy = ["--haproxy", str(proxy.socket), "--map", str(proxy.map)]
        self._environment = {**os.environ, **PROGRAM_PATH, "AMS_ENDPOINT": new.url, "AMS_TOKEN": token}
        self._folder = folder

    def plan(self) -> Mapping[str, int]:
        told: dict[str, int] = json.loads(self._run("plan", *self._source, "-o", "json"))["oddities"]
        return told

    def copy(self) -> float:
        """Copy what is new while the old service goes on; return how long that took."""
        began = perf_counter()
        self._run("copy", *self._source, *self._target)
        return perf_counter() - began

    def cut(self) -> None:
        change = ["--stop", self._asking("stop"), "--start", self._asking("start")]
        self._run("cut", *self._source, *self._target, *self._proxy, *change)

    def verify(self) -> list[str]:
        told = json.loads(self._run("verify", *self._source, "-o", "json", codes=(0, 1)))
        return [f"{each['what']}: {each['old']}, and now {each['new']}" for each in told["differences"]]

    @contextmanager
    def services(self, stop_old: Callable[[], None], start_new: Callable[[], None]) -> Iterator[None]:
        ended = threading.Event()
        wanted = {"stop": stop_old, "start": start_new}

        def serve() -> None:
            while not ended.wait(LOOK_SECONDS):
                for name, do in wanted.items():
                    if (self._folder / name).exists():
                        do()
                        (self._folder / name).unlink()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _asking(self, what: str) -> str:
        return f"touch {self._folder / what} && while [ -e {self._folder / what} ]; do sleep {LOOK_SECONDS}; done"

    def _run(self, command: str, *arguments: str, codes: Sequence[int] = (0,)) -> Any:
        run = subprocess.run(  # noqa: S603 - our own program
            python("ams.cli.main", "migrate", command, *arguments),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env=self._environment, cwd=ROOT,
            timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
        if run.returncode not in codes:
            raise CommandFailed(f"ams migrate {command} ended with {run.returncode}: {run.stderr.strip()[-600:]}")
        return run.stdout
