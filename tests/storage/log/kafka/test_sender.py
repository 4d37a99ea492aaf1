"""Sending: each request is stored once, in order, whatever happens to answers, brokers and callers."""

import asyncio
import base64
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from aiokafka import errors
from aiokafka.protocol.produce import ProduceRequest

from ams.core.errors import LogUnavailable, TooLarge
from ams.core.messages import Message, message
from ams.core.names import TopicId
from ams.core.retention_clock import RetentionClock
from ams.core.supervisor import Supervisor
from ams.storage.log.base import Appended, Bounds
from ams.storage.log.kafka.connection import KafkaConnection
from ams.storage.log.kafka.log import KafkaLog
from ams.storage.log.kafka.sender import (
    LAST_EPOCH,
    LAST_SEQUENCE,
    AppendBatch,
    AppendRequest,
    Producer,
    TopicQueue,
    Unsent,
    make,
)
from tests.storage.log.engines import Kafka, all_fragments, fragments, make_messages, new_topic, texts
from tests.storage.log.kafka.stored import raw_batches
from tests.support.waiting import PATIENCE_SECONDS, some_turns, wait_until_async

pytestmark = pytest.mark.kafka


class LossyConnection(KafkaConnection):
    lose_answers = 0
    lose_requests = 0
    sent = 0
    required_acks: int | None = None
    answers_too_few = False  # whether the leader says that too few brokers are in sync: a single broker never does
    held: asyncio.Event | None = None  # while not set, publishes are on their way
    impatience: float | None = None  # seconds that calls may take from now on

    def deadline(self) -> float:
        if self.impatience is None:
            return super().deadline()
        return asyncio.get_running_loop().time() + self.impatience

    async def send(self, node: Any, request: Any, *rest: Any) -> Any:
        if not isinstance(request, ProduceRequest):
            return await super().send(node, request, *rest)
        self.sent += 1
        self.required_acks = request.required_acks
        if self.held is not None:
            await self.held.wait()
        if self.answers_too_few:
            names = [name for name, _ in request._topics]
            answer = [(0, errors.NotEnoughReplicasError.errno, -1, -1)]
            return SimpleNamespace(topics=[(name, answer) for name in names])
        if self.lose_requests:
            self.lose_requests -= 1
            raise errors.KafkaConnectionError("lost before it arrived")
        response = await super().send(node, request, *rest)
        if self.lose_answers:
            self.lose_answers -= 1
            raise errors.KafkaConnectionError("lost after it was stored")
        return response


class LossyLog(KafkaLog):
    @property
    def connection(self) -> LossyConnection:
        assert isinstance(self._connection, LossyConnection)
        return self._connection

    def queue(self, topic: TopicId) -> TopicQueue:
        return self._sender._queues[topic]


@pytest.fixture
async def log(engine: Kafka):
    log = await open_lossy_log(engine)
    yield log
    await log.close()


async def open_lossy_log(engine: Kafka, **options: Any) -> LossyLog:
    settings = engine.options(**options)
    connection = await LossyConnection.open(settings)
    return LossyLog(connection, settings, engine.idempotency, Supervisor(), RetentionClock(engine.clock))


async def test_a_batch_whose_answer_is_lost_is_stored_once_and_answered(log: LossyLog, topic: TopicId) -> None:
    await log.append(topic, texts("aaaa"))
    log.connection.lose_answers = 3

    appended = await log.append(topic, texts("bbbb", "cccc"))

    assert (appended.first, appended.count) == (1, 2)
    assert log.connection.sent == 5
    assert log.connection.required_acks == -1, "all brokers in sync have it"
    assert await all_fragments(log, topic) == fragments(texts("aaaa", "bbbb", "cccc"))
    assert [each.time for each in await log.read(topic, 1, max_messages=2, max_bytes=100)] == [appended.time] * 2


async def test_a_batch_that_is_lost_on_its_way_is_sent_again(log: LossyLog, topic: TopicId) -> None:
    log.connection.lose_requests = 2
    answers = await asyncio.gather(*(log.append(topic, make_messages(n, 1)) for n in range(10)))
    assert [each.first for each in answers] == list(range(10))


async def test_a_batch_given_up_may_be_stored_and_what_follows_is_in_order(engine: Kafka) -> None:
    log = await open_lossy_log(engine, patience=PATIENCE_SECONDS)
    topic = await new_topic(log)
    await log.append(topic, texts("aaaa"))
    log.connection.lose_answers, log.connection.impatience = 10**6, 2.0

    with pytest.raises(LogUnavailable) as caught:
        await log.append(topic, texts("bbbb"))
    await log._sender.quiet(topic)
    log.connection.lose_answers, log.connection.impatience = 0, None
    appended = await log.append(topic, texts("cccc"))

    assert not isinstance(caught.value, Unsent)
    assert log.queue(topic).producer.epoch == 1
    assert appended.first == 2
    assert await all_fragments(log, topic) == fragments(texts("aaaa", "bbbb", "cccc"))
    await log.close()


async def test_a_batch_given_up_is_shut_out_by_what_follows_it(log: LossyLog, topic: TopicId) -> None:
    """If it is still under way, it must not be stored after later acknowledged ones."""
    await log.append(topic, texts("aaaa"))
    queue = log.queue(topic)
    late = TopicQueue(queue.partition)
    late.producer, late.sequence = queue.producer, queue.sequence
    queue.renew()
    await log.append(topic, texts("cccc"))

    batch = AppendBatch([AppendRequest([(b"late", [])], [], 4, 1.0)], 100)
    await make(late, batch, 2**20, 0)
    node = await log.connection.leader(queue.partition, until=asyncio.get_running_loop().time() + 8)
    publish = ProduceRequest(None, -1, 3000, [(queue.partition.name, [(0, batch.data)])])
    [(_, [(_, code, *_)])] = (await log.connection.send(node, publish)).topics
    assert errors.for_code(code) is errors.InvalidProducerEpoch
    assert await all_fragments(log, topic) == fragments(texts("aaaa", "cccc"))


async def test_what_waits_too_long_to_be_sent_is_surely_not_stored(engine: Kafka) -> None:
    log = await open_lossy_log(engine, patience=PATIENCE_SECONDS)
    topic = await new_topic(log)
    log.connection.held = asyncio.Event()
    first = asyncio.ensure_future(log.append(topic, texts("aaaa")))
    await wait_until_async(lambda: log.connection.sent)
    log.connection.impatience = 0.6
    with pytest.raises(Unsent):
        await log.append(topic, texts("bbbb"))

    log.connection.impatience = None
    log.connection.held.set()
    assert (await first).first == 0
    assert (await log.append(topic, texts("cccc"))).first == 1
    assert await all_fragments(log, topic) == fragments(texts("aaaa", "cccc"))
    await log.close()


async def test_a_caller_that_leaves_does_not_harm_the_others_of_its_batch(log: LossyLog, topic: TopicId) -> None:
    log.connection.held = asyncio.Event()
    callers = [asyncio.ensure_future(log.append(topic, make_messages(n, 1))) for n in range(6)]
    await wait_until_async(lambda: log.connection.sent)
    later = [asyncio.ensure_future(log.append(topic, make_messages(n, 1))) for n in range(6, 10)]
    await asyncio.sleep(0)
    for each in (callers[0], callers[3], later[1]):
        each.cancel()
    log.connection.held.set()
    answers = await asyncio.gather(*callers, *later, return_exceptions=True)

    assert [each.first for each in answers if isinstance(each, Appended)] == [1, 2, 4, 5, 6, 7, 8]
    expected = [*range(7), 8, 9]  # what had been sent is stored, what had not is not
    assert await all_fragments(log, topic) == [make_messages(n, 1)[0].fragment for n in expected]


async def test_one_topic_that_is_held_up_does_not_hold_up_others(log: LossyLog) -> None:
    slow, quick = await new_topic(log), await new_topic(log)
    log.connection.held = asyncio.Event()
    waiting = asyncio.ensure_future(log.append(slow, texts("aaaa")))
    await wait_until_async(lambda: log.connection.sent)
    log.connection.held, held = None, log.connection.held

    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await log.append(quick, texts("bbbb"))).first == 0

    assert not waiting.done()
    held.set()
    assert (await waiting).first == 0


async def test_small_requests_behind_one_as_large_as_a_batch_wait_for_the_next(engine: Kafka) -> None:
    """A full batch accepts no more records, and reports that to nobody."""
    log = await open_lossy_log(engine, max_batch_bytes=2**20)
    topic = await new_topic(log)
    log.connection.held = asyncio.Event()
    requests = [make_messages(0, 1), [as_text(130_000)] * 8, *([as_text(30_000)] for _ in range(4))]
    appends = []
    for each in requests:
        appends.append(asyncio.ensure_future(log.append(topic, each)))
        await wait_until_async(lambda: log.connection.sent)
        await some_turns()
    log.connection.held.set()
    assert [each.first for each in await asyncio.gather(*appends)] == [0, 1, 9, 10, 11, 12]
    assert await all_fragments(log, topic) == fragments([message for each in requests for message in each])
    await log.close()


def as_text(size: int) -> Message:
    """Make a message whose data stays encoded."""
    return message("A" * size + "\n")


async def test_requests_of_several_nodes_are_each_whole_in_one_batch(engine: Kafka) -> None:
    """So an append of a dead node is found whole, or not at all."""
    async with engine.open_log() as one, engine.open_log() as other:
        topic = await new_topic(one)
        requests = [texts(*(f"{n:04d}{m:04d}" for m in range((1, 100, 1000)[n % 3]))) for n in range(60)]
        answers = await asyncio.gather(*((one, other)[n % 2].append(topic, each) for n, each in enumerate(requests)))
        found = await raw_batches(engine.servers, await one._partition(topic), await one.bounds(topic))

    answered = sorted((answer.first, answer.count, each) for answer, each in zip(answers, requests, strict=True))
    assert [first for first, *_ in answered] == list(accumulate([count for _, count, _ in answered[:-1]], initial=0))
    batch_of = {base + place: number for number, (base, held) in enumerate(found) for place in range(len(held))}
    assert all(batch_of[first] == batch_of[first + count - 1] for first, count, _ in answered)
    assert [value for _, held in found for value in held] == [
        base64.b64decode(message.data) for _, _, request in answered for message in request
    ]


async def test_one_request_larger_than_a_batch_is_refused_and_one_as_large_as_it_is_stored(engine: Kafka) -> None:
    async with engine.open_log(max_batch_bytes=2**20) as log:
        topic = await new_topic(log)
        with pytest.raises(TooLarge):
            await log.append(topic, make_messages(0, 20, size=70_000))
        assert await log.bounds(topic) == Bounds(0, 0)

        whole = make_messages(0, 19, size=70_000)
        assert (await log.append(topic, whole)).count == 19
        assert await all_fragments(log, topic) == fragments(whole)


async def test_headers_and_empty_messages_fit_into_what_was_reckoned_for_them(engine: Kafka) -> None:
    many = [message("", {"n" * 10: "v" * 10}) for _ in range(5_000)]
    async with engine.open_log() as log:
        topic = await new_topic(log)
        assert (await log.append(topic, many)).count == 5_000
        assert (await log.append(topic, [message("")] * 8_000)).first == 5_000


async def test_a_sequence_near_its_end_begins_again_in_the_next_epoch(log: LossyLog, topic: TopicId) -> None:
    await log.append(topic, texts("aaaa"))
    queue = log.queue(topic)
    queue.renew()
    queue.sequence = 0
    await log.append(topic, texts("bbbb"))
    queue.sequence = LAST_SEQUENCE - 10
    queue.batch = AppendBatch([], 0, 1)
    queue.settle()
    assert (queue.sequence, queue.producer.epoch) == (0, 2)

    assert (await log.append(topic, texts("cccc"))).first == 2


async def test_a_topic_that_was_taken_for_gone_goes_on_with_another_producer(log: LossyLog, topic: TopicId) -> None:
    """With the same one, a first batch as large as the one before would count as a duplicate, and be lost."""
    await log.append(topic, texts("aaaa"))
    log._topics.forget(await log._partition(topic))

    assert (await log.append(topic, texts("bbbb"))).first == 1
    assert await all_fragments(log, topic) == fragments(texts("aaaa", "bbbb"))


async def test_a_producer_whose_epochs_are_used_up_is_replaced(log: LossyLog, topic: TopicId) -> None:
    await log.append(topic, texts("aaaa"))
    queue = log.queue(topic)
    worn = queue.producer.id
    queue.producer = Producer(worn, LAST_EPOCH)
    queue.sequence = 0
    await log.append(topic, texts("bbbb"))
    queue.renew()

    assert (await log.append(topic, texts("cccc"))).first == 2
    assert queue.producer.id != worn
    assert queue.producer.epoch == 0


async def test_what_brokers_refuse_is_tried_anew(log: LossyLog, monkeypatch: pytest.MonkeyPatch, topic: TopicId):
    log.connection.forget_leader(await log._partition(topic))

    async def refuse_call(*_: Any, **__: Any) -> Any:
        raise errors.TopicAuthorizationFailedError

    with monkeypatch.context() as patched:
        patched.setattr(log.connection, "leader", refuse_call)
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(LogUnavailable):
                await log.append(topic, texts("aaaa"))

    assert (await log.append(topic, texts("bbbb"))).first == 0


async def test_a_publish_waits_while_too_few_brokers_are_in_sync(log: LossyLog, topic: TopicId) -> None:
    log.connection.answers_too_few = True
    waiting = asyncio.ensure_future(log.append(topic, texts("aaaa")))
    await wait_until_async(lambda: log.refusal)

    assert (log.refusal, log.away, waiting.done()) == ("too few brokers are in sync", None, False)

    log.connection.answers_too_few = False
    assert (await waiting).first == 0
    assert log.refusal is None


async def test_nobody_is_told_that_a_batch_is_unsent_while_it_is_made(log: LossyLog, topic: TopicId) -> None:
    await log.append(topic, texts("aaaa"))
    queue = log.queue(topic)
    appending = asyncio.ensure_future(log.append(topic, make_messages(0, 5000)))
    await wait_until_async(lambda: queue.batch)
    assert not queue.batch.data
    queue.expire(float("inf"))

    with pytest.raises(LogUnavailable) as caught:
        await appending
    assert not isinstance(caught.value, Unsent)


async def test_a_defect_of_a_topic_is_survived(log: LossyLog, monkeypatch: pytest.MonkeyPatch, topic: TopicId) -> None:
    with monkeypatch.context() as planted:
        planted.setattr(log._sender, "identify", break_down)
        with pytest.raises(LogUnavailable):
            await log.append(topic, texts("a"))

    assert log._sender._supervisor.survived == {"writing of the log": 1}
    assert (await log.append(topic, texts("b"))).first == 0


def break_down(*_: object) -> NoReturn:
    raise RuntimeError("planted")
