"""A topic as the brokers have it, past the log."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ams.storage.log.base import Bounds
from ams.storage.log.kafka.administration import NewTopic, alter, create_topics, describe, led_according_to
from ams.storage.log.kafka.connection import Connection
from ams.storage.log.kafka.fetch import SCAN, fetch_part
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Partition
from ams.storage.log.kafka.records import batches


def bare_options(servers: str, prefix: str = "none") -> KafkaOptions:
    return KafkaOptions(servers=servers, prefix=prefix, replication=1, min_isr=1)


async def raw_batches(servers: str, partition: Partition, bounds: Bounds) -> list[tuple[int, list[bytes]]]:
    """Return offset and values of each batch within bounds."""
    found = []
    async with connected(servers) as connection:
        at = bounds.oldest
        while at < bounds.end:
            until = asyncio.get_running_loop().time() + 8
            part = await fetch_part(connection, partition, at, 2**20, SCAN, until=until)
            for batch in batches(part.data):
                found.append((batch.base_offset, [record.value for record in batch]))
                at = batch.next_offset + partition.first
    return found


@contextlib.asynccontextmanager
async def connected(servers: str) -> AsyncIterator[Connection]:
    connection = await Connection.open(bare_options(servers))
    try:
        yield connection
    finally:
        await connection.close()


async def make_topic(servers: str, name: str, **configs: str) -> None:
    """Make a topic by hand; in names of settings an underscore stands for a dot."""
    async with connected(servers) as connection:
        until = asyncio.get_running_loop().time() + 8
        given = {name.replace("_", "."): value for name, value in configs.items()}
        assert await create_topics(connection, [NewTopic(name, 1, given)], until) == [None]
        for node in connection.links.nodes():
            await led_according_to(connection, node, [name])


async def change_topic(servers: str, partition: Partition, **configs: str | None) -> None:
    """Change settings of a topic behind the log's back; the broker goes by them when this returns."""
    changes = {name.replace("_", "."): value for name, value in configs.items()}
    async with connected(servers) as connection:
        until = asyncio.get_running_loop().time() + 8
        await alter(connection, partition, changes, until)
        while True:
            found = (await describe(connection, [partition.name], changes, until))[partition.name]
            if all(value in (None, found[name]) for name, value in changes.items()):
                return
            await asyncio.sleep(0.02)


async def settings(servers: str, partition: Partition, *names: str) -> dict[str, str]:
    """Return settings of a topic as the brokers have them."""
    async with connected(servers) as connection:
        until = asyncio.get_running_loop().time() + 8
        return dict((await describe(connection, [partition.name], names, until))[partition.name])
