"""The old side: the original, built from Go's module registry by its name, or the stand-in where it cannot be had.

Nothing of it is in this repository: it is built into a cache folder of the user's, once.
"""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ams.http.tls import self_signed
from cluster.mongodb import MongoDB
from cluster.old_kafka import OldKafka
from cluster.ports import LOOPBACK, free_port, listening
from cluster.processes import Process, Startable
from demo.migrate.filling import DATABASE
from demo.migrate.site import WORKER_TOKEN
from demo.service import PROGRAM_PATH, python
from demo.workers import write_secret

MODULE, VERSIONS = "github.com/ARGOeu/argo-messaging", ("v1.7.0", "latest")
BUILD_SECONDS = 300
START_SECONDS = 60.0


class CannotBuild(Exception):
    """The original cannot be had on this machine; the text is one line that says why."""


@cache
def program() -> Path:
    """Return the original's program; the first time it is built. Raises `CannotBuild`."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ams-migrate-demo"
    built = folder / "argo-messaging"
    if built.exists():
        return built
    if shutil.which("go") is None:
        raise CannotBuild("the original cannot be built: Go is missing (the Debian package golang-go)")
    said = ""
    for version in VERSIONS:
        run = subprocess.run(  # noqa: S603 - a fixed module
            ["go", "install", f"{MODULE}@{version}"],  # noqa: S607
            env={**os.environ, "GOBIN": str(folder)},
            capture_output=True, text=True, timeout=BUILD_SECONDS, check=False,
        )  # fmt: skip
        if run.returncode == 0 and built.exists():
            return built
        said = said or (run.stderr.strip().splitlines() or ["no reason given"])[-1].strip()
    raise CannotBuild(f"the original cannot be built: Go's module registry does not give {MODULE}: {said}")


@dataclass(frozen=True, slots=True)
class Address:
    """Addresses of the parts of the old side."""

    url: str
    mongodb: str
    kafka: str
    pid: int


class OldSide(Startable):
    """MongoDB, Kafka with ZooKeeper, and before them the API: the original's if it `is_original`, else the stand-in's.

    Fill MongoDB and Kafka when the `stores` are started and before `start_api`: the API reads roles and tokens there.
    """

    def __init__(self, folder: Path, *, is_original: bool) -> None:
        self._folder = folder.absolute()
        self.mongodb, self.kafka = MongoDB(heap_mb=192), OldKafka(self._folder / "kafka")
        self.is_original = is_original
        self._port = free_port()
        self._api: Process | None = None

    @property
    def address(self) -> Address:
        """Return where everything is; of the API once it runs."""
        pid = self._api.pid if self._api else 0
        return Address(f"https://localhost:{self._port}", self.mongodb.uri, self.kafka.servers, pid)

    @property
    def port(self) -> int:
        """Return the port of the API."""
        return self._port

    @property
    def certificate(self) -> Path:
        """Return what clients of the API trust."""
        return self._folder / "ca.pem"

    def start(self) -> None:
        """Start the stores alone, both empty."""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self.mongodb.start()
            self.kafka.start()
        except BaseException:
            self.stop()
            raise

    def start_api(self) -> None:
        """Start the API, and return when it takes connections."""
        _, chain, key = self_signed(str(self._folder))
        command = self._original(chain, key) if self.is_original else self._stand_in(chain, key)
        self._api = Process("old service", command, self._folder / "api.log", environment=PROGRAM_PATH)
        self._api.start()
        self._api.wait_until(lambda: listening(self._port), START_SECONDS)

    def stop_api(self) -> None:
        """End the API as its unit does at a stop: SIGTERM, which cuts requests."""
        if self._api:
            self._api.stop()

    def stop(self) -> None:
        """End everything."""
        if self._api:
            self._api.kill()
        self.kafka.stop()
        if self.mongodb.uri:
            self.mongodb.stop()

    def _stand_in(self, chain: str, key: str) -> list[str]:
        where = ["--mongodb", self.mongodb.uri, "--kafka", self.kafka.servers, "--port", str(self._port)]
        return python("demo.migrate.old.service", *where, "--cert", chain, "--key", key)

    def _original(self, chain: str, key: str) -> list[str]:
        settings = {
            "bind_ip": LOOPBACK, "port": self._port, "zookeeper_hosts": [self.kafka.zookeeper], "kafka_znode": "",
            "store_host": self.mongodb.uri.removeprefix("mongodb://"), "store_db": DATABASE, "certificate": chain,
            "certificate_key": key, "certificate_authorities_dir": str(self._folder), "per_resource_auth": True,
            "auth_option": "both", "push_enabled": False, "push_worker_token": WORKER_TOKEN, "log_level": "WARNING",
        }  # fmt: skip
        write_secret(self._folder / "config.json", json.dumps(settings))
        return [str(program()), "--config-dir", str(self._folder)]
