import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError, LeaderNotAvailableError, UnknownTopicOrPartitionError

from ams.core.errors import LogUnavailable
from ams.storage.log.kafka.connection import Leaders

UNKNOWN = 3


class Brokers:
    """Answer questions about topics: a leader, or an error's code below 0."""

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
            return UNKNOWN, name, False, []
        return 0, name, False, [(0 if leader >= 0 else 5, 0, leader, [], [])]


async def test_topics_asked_about_together_are_asked_for_in_one_question():
    brokers = Brokers(a=0, b=2, c=2)
    leaders = Leaders(brokers)
    found = await asyncio.gather(*(leaders.of(name) for name in ("a", "b", "c", "b")))
    assert found == [0, 2, 2, 2]
    assert [await leaders.of(name) for name in ("a", "b")] == [0, 2]
    assert brokers.questions == [["a", "b", "c"]]


async def test_only_what_turned_out_to_be_wrong_is_looked_up_again():
    brokers = Brokers(a=1, b=2, c=2)
    leaders = Leaders(brokers)
    for name in ("a", "b", "c"):
        await leaders.of(name)
    brokers.topics.update(a=3, b=3, c=3)
    leaders.forget("a")
    assert [await leaders.of(name) for name in ("a", "b")] == [3, 2]
    leaders.forget_node(2)
    assert [await leaders.of(name) for name in ("a", "b", "c")] == [3, 3, 3]


async def test_what_is_unknown_or_without_a_leader_is_an_error_that_is_not_remembered():
    brokers = Brokers(b=-1)
    leaders = Leaders(brokers)
    with pytest.raises(UnknownTopicOrPartitionError):
        await leaders.of("a")
    with pytest.raises(LeaderNotAvailableError):
        await leaders.of("b")
    brokers.topics.update(a=1, b=1)
    assert [await leaders.of(name) for name in ("a", "b")] == [1, 1]


async def test_when_no_broker_answers_all_who_ask_are_told():
    brokers = Brokers(a=1)
    brokers.trouble = KafkaConnectionError("away")
    leaders = Leaders(brokers)
    found = await asyncio.gather(leaders.of("a"), leaders.of("b"), return_exceptions=True)
    assert [str(each) for each in found] == ["KafkaConnectionError: away"] * 2
    brokers.trouble = None
    assert await leaders.of("a") == 1


async def test_a_caller_who_goes_away_harms_no_other_and_closing_ends_all():
    brokers = Brokers(a=1)
    leaders = Leaders(brokers)
    one, two = asyncio.create_task(leaders.of("a")), asyncio.create_task(leaders.of("a"))
    await asyncio.sleep(0)
    one.cancel()
    assert await two == 1
    last = asyncio.create_task(leaders.of("z"))
    await asyncio.sleep(0)
    await leaders.close()
    with pytest.raises(LogUnavailable):
        await last
