"""The new side: a data folder, and `ams serve` on it when it is told to start."""

from pathlib import Path

from cluster.ports import LOOPBACK, free_port
from cluster.processes import Process, Startable
from demo import pushing
from demo.migrate.site import WORKER_TOKEN
from demo.service import PROGRAM_PATH, python
from demo.workers import write_secret

START_SECONDS = 120.0


class NewSide(Startable):
    """Settings in a file that `ams migrate` reads too; `receiver_ca` is what push endpoints are checked by."""

    def __init__(self, folder: Path, receiver_ca: str) -> None:
        self.data, self.config = folder / "ams-data", folder / "ams.toml"
        self.port = free_port()
        settings = {
            "data": str(self.data), "host": LOOPBACK, "port": self.port, "ops_port": 0,
            "push_worker_token": WORKER_TOKEN, "push_allow": pushing.ALLOWED, "push_ca_file": receiver_ca,
            "trusted_proxies": LOOPBACK, "console": False,
        }  # fmt: skip
        write_secret(self.config, "".join(f"{name} = {_toml(value)}\n" for name, value in settings.items()))
        command = python("ams.cli.main", "serve", "--config", str(self.config))
        self._process = Process("new service", command, folder / "ams.log", environment=PROGRAM_PATH)

    @property
    def url(self) -> str:
        """Return the base URL, which only haproxy and administrators use."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it, and return when it is ready."""
        self._process.start()
        self._process.wait_said("ready ", START_SECONDS)

    def stop(self) -> None:
        """End it."""
        self._process.stop()


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | int) else f'"{value}"'
