"""Questions to leaders: the bounds of many topics, and fetch sessions."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import ClusterAuthorizationFailedError
from aiokafka.protocol.fetch import FetchRequest_v11

from ams.storage.log.base import Bounds
from ams.storage.log.kafka import fetch as together
from ams.storage.log.kafka.fetch import FetchSession, bounds_of_all
from ams.storage.log.kafka.links import ASK
from tests.storage.log.kafka import raw

pytestmark = pytest.mark.kafka


async def test_the_bounds_of_many_topics_are_those_of_each(monkeypatch) -> None:
    monkeypatch.setattr(together, "AT_ONCE", 2)
    empty, cut, moved = await raw.make(), await raw.make(), await raw.make(first=100)
    for partition in (cut, moved):
        await raw.produce(partition, [b"a", b"b", b"c"])
    await raw.delete_before(cut, 2)
    gone = await raw.make()
    await raw.delete(gone)

    async with raw.opened() as (connection, reader):
        until = asyncio.get_running_loop().time() + 8
        found = await bounds_of_all(connection, [empty, cut, moved, gone], until)

        assert found == {empty: Bounds(0, 0), cut: Bounds(2, 3), moved: Bounds(100, 103)}
        assert {partition: await reader.bounds(partition) for partition in (empty, cut, moved)} == found


SIZES = {"wait_ms": 100, "topic_bytes": 1000, "max_bytes": 10_000}


async def asked(connection, session, leader, wanted):
    """Ask once; return the topics in the answer that have messages, None if the session is to begin again."""
    response = await connection.send(leader, session.request(wanted, **SIZES), ASK)
    if not session.answered(response):
        return None
    return {name for name, parts in response.topics if parts[0][-1]}


async def test_only_what_changed_is_said_and_answered():
    one, two = await raw.make(), await raw.make()
    async with raw.opened() as (connection, _):
        leader = await connection.leader(one, until=float("inf"))
        session = FetchSession()
        assert await asked(connection, session, leader, {one.name: 0, two.name: 0}) == set()
        await raw.produce(two, [b"x"])
        assert await asked(connection, session, leader, {one.name: 0, two.name: 0}) == {two.name}
        assert await asked(connection, session, leader, {one.name: 0, two.name: 1}) == set()
        await raw.produce(one, [b"x"])
        await raw.produce(two, [b"y"])
        assert await asked(connection, session, leader, {one.name: 0}) == {one.name}
        assert await asked(connection, session, leader, {two.name: 1}) == {two.name}


async def test_a_session_that_the_broker_has_forgotten_begins_again():
    partition = await raw.make()
    await raw.produce(partition, [b"x"])
    async with raw.opened() as (connection, _):
        leader = await connection.leader(partition, until=float("inf"))
        session = FetchSession()
        assert await asked(connection, session, leader, {partition.name: 0}) == {partition.name}
        session.answered(SimpleNamespace(error_code=0, session_id=12345))
        assert await asked(connection, session, leader, {partition.name: 0}) is None
        assert await asked(connection, session, leader, {partition.name: 0}) == {partition.name}


def test_a_broker_without_room_for_a_session_is_asked_about_all_each_time():
    session = FetchSession()
    for _ in range(2):
        request = session.request({"a": 0, "b": 5}, **SIZES).build(FetchRequest_v11)
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert [name for name, _ in request.topics] == ["a", "b"]
        assert session.answered(SimpleNamespace(error_code=0, session_id=0))


def test_other_errors_go_up():
    session = FetchSession()
    session.request({"a": 0}, **SIZES)
    with pytest.raises(ClusterAuthorizationFailedError):
        session.answered(SimpleNamespace(error_code=31, session_id=0))
