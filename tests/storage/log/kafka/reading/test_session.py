from types import SimpleNamespace

import pytest
from aiokafka.errors import ClusterAuthorizationFailedError
from aiokafka.protocol.fetch import FetchRequest_v11

from ams.storage.log.kafka.brokers.links import ASK
from ams.storage.log.kafka.reading.session import FetchSession
from tests.storage.log.kafka import raw

pytestmark = pytest.mark.kafka
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
    place = await raw.make()
    await raw.produce(place, [b"x"])
    async with raw.opened() as (connection, _):
        leader = await connection.leader(place, until=float("inf"))
        session = FetchSession()
        assert await asked(connection, session, leader, {place.name: 0}) == {place.name}
        session.answered(SimpleNamespace(error_code=0, session_id=12345))
        assert await asked(connection, session, leader, {place.name: 0}) is None
        assert await asked(connection, session, leader, {place.name: 0}) == {place.name}


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
