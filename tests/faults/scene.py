from collections.abc import Mapping
from pathlib import Path
from typing import Self

from simulation.histories.attempts import Ending
from simulation.histories.history import History
from simulation.histories.scene import ending, prepare
from tests.faults.http_client import SMALL_SETTINGS, HttpClient, Target, Traffic


class Stage:
    """A service that is killed, its clients and their history; all end with the block."""

    def __init__(
        self, data: Path, subscriptions: Mapping[str, str], environment: Mapping[str, str] = SMALL_SETTINGS
    ) -> None:
        self.target, self.traffic = Target(data, environment), Traffic()
        self.history = History(subscriptions, restarts=self.target.restarts)
        self._clients: list[HttpClient] = []
        self.admin = self.client("admin")

    def client(self, name: str) -> HttpClient:
        self._clients.append(HttpClient(name, self.target, self.traffic))
        return self._clients[-1]

    async def prepare(self) -> None:
        await prepare(self.admin, self.history.subscriptions)

    async def ending(self) -> Ending:
        return await ending(self.admin, self.history.subscriptions)

    async def __aenter__(self) -> Self:
        await self.target.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        for each in self._clients:
            each.close()
        await self.target.stop()
