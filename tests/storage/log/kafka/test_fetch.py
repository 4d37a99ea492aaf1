"""Requests to brokers: leaders of topics, bounds of many topics, and fetch sessions."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from aiokafka.protocol.fetch import FetchRequest_v11

from ams.core.names import new_topic_id
from ams.storage.log.base import Bounds
from ams.storage.log.kafka import fetch as together
from ams.storage.log.kafka.connection import ASK, KafkaConnection
from ams.storage.log.kafka.fetch import FetchSession, bounds_of_all
from ams.storage.log.kafka.options import KafkaOptions
from ams.storage.log.kafka.partition import Partition
from tests.storage.log.kafka import stored


@pytest.mark.kafka
async def test_the_bounds_of_many_topics_are_those_of_each(monkeypatch) -> None:
    monkeypatch.setattr(together, "AT_ONCE", 2)
    empty, cut, moved = await stored.make(), await stored.make(), await stored.make(first=100)
    for partition in (cut, moved):
        await stored.produce(partition, [b"a", b"b", b"c"])
    await stored.delete_before(cut, 2)
    gone = await stored.make()
    await stored.delete(gone)

    async with stored.open_reader() as (connection, reader):
        found = await bounds_of_all(connection, [empty, cut, moved, gone], asyncio.get_running_loop().time() + 8)

        assert found == {empty: Bounds(0, 0), cut: Bounds(2, 3), moved: Bounds(100, 103)}
        assert {partition: await reader.bounds(partition) for partition in (empty, cut, moved)} == found


SIZES = {"wait_ms": 100, "topic_bytes": 1000, "max_bytes": 10_000}


async def fetch_topics(connection, session, leader, wanted):
    """Fetch once; return the topics with messages, None if the session has to start again."""
    response = await connection.send(leader, session.request(wanted, **SIZES), ASK)
    if not session.accept_answer(response):
        return None
    return {name for name, parts in response.topics if parts[0][-1]}


@pytest.mark.kafka
async def test_only_what_changed_is_said_and_answered() -> None:
    one, two = await stored.make(), await stored.make()
    async with stored.open_reader() as (connection, _):
        leader = await connection.leader(one, until=float("inf"))
        session = FetchSession()
        assert await fetch_topics(connection, session, leader, {one.name: 0, two.name: 0}) == set()
        await stored.produce(two, [b"x"])
        assert await fetch_topics(connection, session, leader, {one.name: 0, two.name: 0}) == {two.name}
        assert await fetch_topics(connection, session, leader, {one.name: 0, two.name: 1}) == set()
        await stored.produce(one, [b"x"])
        await stored.produce(two, [b"y"])
        assert await fetch_topics(connection, session, leader, {one.name: 0}) == {one.name}
        assert await fetch_topics(connection, session, leader, {two.name: 1}) == {two.name}


@pytest.mark.kafka
async def test_a_session_that_the_broker_has_forgotten_begins_again() -> None:
    partition = await stored.make()
    await stored.produce(partition, [b"x"])
    async with stored.open_reader() as (connection, _):
        leader = await connection.leader(partition, until=float("inf"))
        session = FetchSession()
        assert await fetch_topics(connection, session, leader, {partition.name: 0}) == {partition.name}
        session.accept_answer(SimpleNamespace(error_code=0, session_id=12345))
        assert await fetch_topics(connection, session, leader, {partition.name: 0}) is None
        assert await fetch_topics(connection, session, leader, {partition.name: 0}) == {partition.name}


def test_a_broker_without_room_for_a_session_is_asked_about_all_each_time() -> None:
    session = FetchSession()
    for _ in range(2):
        request = session.request({"a": 0, "b": 5}, **SIZES).build(FetchRequest_v11)
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert [name for name, _ in request.topics] == ["a", "b"]
        assert session.accept_answer(SimpleNamespace(error_code=0, session_id=0))


UNKNOWN_TOPIC = 3


class ScriptedBrokers:
    """Answers metadata requests of topics: a leader, or a negative error code."""

    def __init__(self, **topics):
        self.topics = topics
        self.questions = []
        self.trouble = None

    async def __call__(self, names):
        self.questions.append(sorted(names))
        await asyncio.sleep(0)
        if self.trouble:
            raise self.trouble
        return SimpleNamespace(topics=[self._answer(name) for name in names])

    def _answer(self, name):
        leader = self.topics.get(name)
        if leader is None:
            return UNKNOWN_TOPIC, name, False, []
        return 0, name, False, [(0 if leader >= 0 else 5, 0, leader, [], [])]


def open_leaders(brokers: ScriptedBrokers) -> KafkaConnection:
    connection = KafkaConnection(KafkaOptions(servers="kafka:9092"))
    connection._ask_metadata = brokers
    return connection


async def test_topics_asked_about_together_are_asked_for_in_one_question() -> None:
    brokers = ScriptedBrokers(a=0, b=2, c=2)
    leaders = open_leaders(brokers)
    assert await asyncio.gather(*(leaders._leader(name) for name in ("a", "b", "c", "b"))) == [0, 2, 2, 2]
    assert [await leaders._leader(name) for name in ("a", "b")] == [0, 2]
    assert brokers.questions == [["a", "b", "c"]]


async def test_only_what_turned_out_to_be_wrong_is_looked_up_again() -> None:
    brokers = ScriptedBrokers(a=1, b=2, c=2)
    leaders = open_leaders(brokers)
    for name in ("a", "b", "c"):
        await leaders._leader(name)
    brokers.topics.update(a=3, b=3, c=3)
    leaders.forget_leader(Partition(new_topic_id(), "a"))
    assert [await leaders._leader(name) for name in ("a", "b")] == [3, 2]
    with pytest.raises(KafkaConnectionError):
        await leaders.send(2, None)  # a broker that is not known
    assert [await leaders._leader(name) for name in ("a", "b", "c")] == [3, 3, 3]


async def test_what_is_unknown_or_without_a_leader_is_an_error_that_is_not_remembered() -> None:
    brokers = ScriptedBrokers(b=-1)
    leaders = open_leaders(brokers)
    with pytest.raises(UnknownTopicOrPartitionError):
        await leaders._leader("a")
    with pytest.raises(LeaderNotAvailableError):
        await leaders._leader("b")
    brokers.topics.update(a=1, b=1)
    assert [await leaders._leader(name) for name in ("a", "b")] == [1, 1]


async def test_when_no_broker_answers_all_who_ask_are_told() -> None:
    brokers = ScriptedBrokers(a=1)
    brokers.trouble = KafkaConnectionError("away")
    leaders = open_leaders(brokers)
    found = await asyncio.gather(leaders._leader("a"), leaders._leader("b"), return_exceptions=True)
    assert [str(each) for each in found] == ["KafkaConnectionError: away"] * 2
    brokers.trouble = None
    assert await leaders._leader("a") == 1
