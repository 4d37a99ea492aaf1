"""The way to Kafka when brokers are absent, killed and frozen; with a broker of its own, that may be broken."""

import asyncio
import contextlib
import time

import pytest

from ams.core.errors import LogUnavailable, TopicGone
from ams.core.names import Offset, new_topic_id
from ams.core.supervisor import Supervisor
from ams.storage.log.kafka.connection import Connection
from ams.storage.log.kafka.fetch import Fetcher
from ams.storage.log.kafka.partition import partition_of
from ams.storage.log.kafka.reader import Reader
from cluster.kafka import Brokers
from cluster.ports import free_port
from tests.storage.log.kafka import raw

pytestmark = pytest.mark.kafka
NOBODY = partition_of("nobody", new_topic_id())
PATIENCE = 8.0


@contextlib.asynccontextmanager
async def opened(options):
    connection = await Connection.open(options)
    reader = Reader(connection, options, Supervisor())
    try:
        yield connection, reader
    finally:
        await reader.close()
        await connection.close()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    with Brokers(tmp_path_factory.mktemp("brokers")) as brokers:
        yield brokers


def until(seconds=PATIENCE):
    return asyncio.get_running_loop().time() + seconds


async def answered(connection, partition):
    """Ask until there is an answer; return how long that took."""
    began = time.monotonic()
    while time.monotonic() < began + 60:
        try:
            await Fetcher(connection).end(partition, until())
        except LogUnavailable:
            await asyncio.sleep(0.1)
        else:
            return time.monotonic() - began
    raise AssertionError("no answer within a minute")


async def refused(connection, partition, within):
    """Ask until it is refused because no broker answers."""
    began = time.monotonic()
    while time.monotonic() < began + within:
        try:
            await Fetcher(connection).end(partition, until(1.0))
        except LogUnavailable:
            if not connection.reachable:
                return
    raise AssertionError(f"not refused within {within} s")


async def test_brokers_that_are_absent_are_said_to_be_at_once():
    options = raw.options(servers=f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}")
    async with opened(options) as (connection, reader):
        assert not connection.reachable
        with pytest.raises(LogUnavailable, match="^Backend Error$"):
            await reader.end(NOBODY)
        with pytest.raises(LogUnavailable, match="^Backend Error$"):
            async with asyncio.timeout(30.0):
                await reader.wait(NOBODY, Offset(0), 600.0)


async def test_a_password_is_shown_nowhere():
    options = raw.options(servers="127.0.0.1:1", user="u", password="pass-word")
    async with opened(options) as (connection, _):
        assert "pass-word" not in repr(options) + connection.trouble


async def test_a_killed_broker_is_noticed_and_found_again_when_it_is_back(brokers):
    async with opened(raw.options(servers=brokers.servers)) as (connection, reader):
        partition = await raw.make(servers=brokers.servers)
        await answered(connection, partition)
        waiting = asyncio.create_task(reader.wait(partition, Offset(0), 30.0))
        await asyncio.sleep(0.2)
        brokers.kill(1)
        await refused(connection, partition, within=3.0)
        with pytest.raises(LogUnavailable):
            await asyncio.wait_for(reader.read(partition, Offset(0), max_messages=1, max_bytes=1), 5.0)
        with pytest.raises(LogUnavailable):
            await asyncio.wait_for(waiting, 5.0)
        await asyncio.to_thread(brokers.restart, 1)
        assert await answered(connection, partition) < 5.0
        assert connection.reachable
        assert not await reader.wait(partition, Offset(0), 0.2)


async def test_a_frozen_broker_is_waited_for_and_given_up_in_time(brokers):
    async with opened(raw.options(servers=brokers.servers, request_timeout=1.5)) as (connection, reader):
        partition = await raw.make(servers=brokers.servers)
        await answered(connection, partition)
        brokers.freeze(1)
        try:
            asking = asyncio.create_task(reader.end(partition))
            await asyncio.sleep(0.5)
            assert not asking.done()
        finally:
            brokers.thaw(1)
        assert await asking == 0
        brokers.freeze(1)
        try:
            await refused(connection, partition, within=12.0)
        finally:
            brokers.thaw(1)
        await answered(connection, partition)
        assert connection.reachable


async def test_a_topic_the_brokers_do_not_know_is_gone_after_a_moment(brokers):
    async with opened(raw.options(servers=brokers.servers)) as (connection, _):
        await answered(connection, await raw.make(servers=brokers.servers))
        with pytest.raises(TopicGone):
            await connection.leader(NOBODY, until=until())
