"""The reference as it is read: its documents in MongoDB and its messages in Kafka."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ams.core.messages import Stored
from ams.migrate.converting import Bounds
from ams.migrate.documents import Documents, read_documents
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
    """The addresses of the reference's stores."""

    mongodb: str = field(default="", repr=False)
    database: str = "argo_msg"
    kafka: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """What can be read of the reference."""

    documents: Callable[[], Awaitable[Documents]]
    """Reads all documents, and what topics have, each time anew."""
    messages: Messages
    """Bounds are those of when it was looked last; before the first look there are none."""
    look: Callable[[], Awaitable[object]]
    """Reads only what topics have."""


@contextlib.asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Source]:
    """Open the source at a place until the block ends. All it gives raises `Unavailable`, which names no secret."""
    async with Kafka(place.kafka) as kafka:

        async def documents() -> Documents:
            found = await asyncio.to_thread(read_documents, place.mongodb, place.database)
            await kafka.look()  # behind it: no position is past the end of its topic
            return found

        yield Source(documents, kafka, kafka.look)
