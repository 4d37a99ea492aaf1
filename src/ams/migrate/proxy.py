"""haproxy, which holds requests and leads them to the old service or to the new one, by its runtime API.

A map with one key, `service`, says where to: `old`, `held` or `new` (`deploy/haproxy/move.cfg`).
"""

import asyncio
import csv
import os
import socket
import time
from collections.abc import Callable
from typing import Literal

from ams.core.errors import Unusable
from ams.storage.files import Disk, write_whole

Service = Literal["old", "new"]  # there is a backend of each name
Where = Literal["old", "held", "new"]
KEY = "service"
SECONDS = 5.0  # until haproxy that does not answer is given up
PAUSE = 0.05  # between two looks at what is under way


class Proxy:
    """haproxy at a socket's path or HOST:PORT, and its map. Raises `Unusable` when it cannot be asked, or refuses."""

    def __init__(self, address: str, map_file: str, tell: Callable[[str], None]) -> None:
        self._address = address
        self._map = map_file
        self._tell = tell

    def lead(self, where: Where) -> None:
        """Lead requests that come from now on; held ones wait. Where the file is on this machine, it says so too."""
        said = self._ask(f"set map {self._map} {KEY} {where}")
        if said:
            raise Unusable(f"haproxy refuses to set {KEY} in {self._map}: {said.splitlines()[0]}")
        if os.path.isfile(self._map):  # for when haproxy starts again
            try:
                write_whole(Disk(), self._map, f"{KEY} {where}\n".encode())
            except OSError as error:
                self._tell(f"{self._map} cannot be written ({error.strerror}): write {KEY} {where} there")

    def where(self) -> str:
        """Return where requests are led now."""
        for line in self._ask(f"show map {self._map}").splitlines():
            words = line.split()
            if words[1:2] == [KEY] and len(words) == 3:
                return words[2]
        raise Unusable(f"haproxy has no {KEY} in {self._map}")

    def under_way(self, service: Service) -> int:
        """Return how many requests a service has not answered yet."""
        return int(self._backend(service)["scur"])

    async def wait_until_up(self, service: Service, seconds: float) -> None:
        """Wait until haproxy, by its own checks, takes a service for one that serves; raise `Unusable` else."""
        until = time.monotonic() + seconds
        while self._backend(service)["status"] != "UP":
            if time.monotonic() > until:
                raise Unusable(
                    f"haproxy does not see the {service} service serve: see its log, and the checks it makes"
                )
            await asyncio.sleep(PAUSE)

    def _backend(self, service: Service) -> dict[str, str]:
        for row in csv.DictReader(self._ask("show stat").lstrip("# ").splitlines()):
            if (row["pxname"], row["svname"]) == (service, "BACKEND"):
                return row
        raise Unusable(f"haproxy has no backend {service}")

    async def drain(self, service: Service, seconds: float) -> int:
        """Wait until a service has answered all it has; return how many requests it has not after `seconds`."""
        until = time.monotonic() + seconds
        while (left := self.under_way(service)) and time.monotonic() < until:  # noqa: ASYNC110 - haproxy only answers
            await asyncio.sleep(PAUSE)
        return left

    def _ask(self, command: str) -> str:
        host, separator, port = self._address.rpartition(":")
        try:
            if separator and port.isdigit() and "/" not in self._address:
                connection = socket.create_connection((host, int(port)), SECONDS)
            else:
                connection = socket.socket(socket.AF_UNIX)
            with connection:
                connection.settimeout(SECONDS)
                if connection.family == socket.AF_UNIX:
                    connection.connect(self._address)
                connection.sendall(f"{command}\n".encode())
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace").strip()
        except OSError as error:
            raise Unusable(f"haproxy cannot be asked at {self._address}: {error}") from None
