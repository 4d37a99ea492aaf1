"""A service in this process, in the place of the one that is killed."""

import asyncio
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Place:
    """Where a service in this process is, as `LiveService` tells it."""

    base_url: str
    token: str


@dataclass
class Stage:
    """A target that is started again in this process: what memory alone knows is forgotten, as by a kill."""

    up: asyncio.Event = field(default_factory=asyncio.Event)
    deaths: int = 0
    live: Place | None = None

    def is_at(self, base_url: str, token: str) -> None:
        """Let clients ask a service."""
        self.live = Place(base_url, token)
        self.up.set()
