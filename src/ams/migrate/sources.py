"""Where the reference is read from: its MongoDB and Kafka, or, where those cannot be reached, its HTTP API."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ams.client import Retry
from ams.core.messages import Stored
from ams.migrate.asking import PATIENCE, OldService
from ams.migrate.converting import Bounds
from ams.migrate.documents import Documents, read_documents
from ams.migrate.listing import LACKS, listed
from ams.migrate.pulling import Pulling
from ams.migrate.records import Kafka


class Messages(Protocol):
    """The messages of topics, by the names that `converting.kafka_topic` gives them."""

    @property
    def other_partitions(self) -> Mapping[str, int]:
        """Messages that nobody could ever read, by topic."""

    def bounds(self, topic: str) -> Bounds:
        """Return what a topic has."""

    def batches(self, topic: str, start: int, end: int, earliest: int = 0) -> AsyncIterator[Sequence[Stored]]:
        """Yield the messages of a topic from offset `start` up to `end`, in order; what cannot be read is left out.

        No publish time is before `earliest`. Raises `Unavailable`.
        """


@dataclass(frozen=True, slots=True)
class Place:
    """Where to read from: `api` with a service_admin's token, or else `mongodb` and `kafka`."""

    mongodb: str = field(default="", repr=False)
    database: str = "argo_msg"
    kafka: str = ""
    api: str = ""
    token: str = field(default="", repr=False)
    ca: str | None = None
    patience: Retry = PATIENCE
    """With the API."""


@dataclass(frozen=True, slots=True)
class Source:
    """What can be read of the reference."""

    documents: Callable[[], Awaitable[Documents]]
    """Reads all documents, and what topics have, each time anew."""
    messages: Messages
    """Bounds are those of when it was looked last; before the first look there are none."""
    look: Callable[[], Awaitable[object]]
    """Looks only at what topics have, where that can be done alone."""
    lacks: Sequence[str] = ()
    """What is never there in what this source gives."""


@contextlib.asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Source]:
    """Open the source at a place until the block ends. All it gives raises `Unavailable`, which names no secret."""
    if place.api:
        async with _api(place) as source:
            yield source
        return
    async with Kafka(place.kafka) as kafka:

        async def documents() -> Documents:
            found = await asyncio.to_thread(read_documents, place.mongodb, place.database)
            await kafka.look()  # behind it: no position is past the end of its topic
            return found

        yield Source(documents, kafka, kafka.look)


@contextlib.asynccontextmanager
async def _api(place: Place) -> AsyncIterator[Source]:
    old = OldService(place.api, place.token, place.ca, place.patience)
    pulling = Pulling(old)

    async def documents() -> Documents:
        found = await listed(old, pulling)
        pulling.know(found.places, found.bounds)
        return found.documents

    try:
        yield Source(documents, pulling, documents, LACKS)
    finally:
        await pulling.close()
        await old.close()
