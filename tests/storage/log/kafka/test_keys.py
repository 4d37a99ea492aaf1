"""Idempotency keys over a store: crashes between append and answer, and the answers to others meanwhile."""

import asyncio
from types import SimpleNamespace

import pytest

from ams.core.errors import KeyReused, LogUnavailable, RegistryUnavailable, TopicGone
from ams.core.names import Offset, TopicId, new_topic_id, new_uuid
from ams.storage.log.base import Appended, Bounds, content_hash, key_hash
from ams.storage.log.kafka import keyed_appends
from ams.storage.log.kafka.fetch import CONSUMER, FOLLOWER, FetchedPart
from ams.storage.log.kafka.idempotency_store import PublishedBytes
from ams.storage.log.kafka.keyed_appends import CLAIM_WAIT_MS, KEY, find_append
from ams.storage.log.kafka.log import KafkaLog
from ams.storage.log.kafka.partition import Partition
from tests.service.interference import fail_calls
from tests.storage.log.engines import HOUR, Kafka, make_messages, new_topic, texts
from tests.storage.log.idempotency_store import MemoryIdempotencyStore
from tests.storage.log.kafka.test_records import batch_of, sign_batch
from tests.support.clock import ManualClock
from tests.support.loop_time import pass_loop_time
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

pytestmark = pytest.mark.kafka


async def claim(engine: Kafka, topic: TopicId, key: str, messages, end: int) -> bytes:
    """Claim a key as a node does that dies right after."""
    hashed = key_hash(topic, key.encode())
    assert await engine.idempotency.claim(topic, hashed, content_hash(messages), end, new_uuid()) is None
    return hashed


async def stored_but_not_settled(engine: Kafka, log: KafkaLog, topic: TopicId, key: str, messages) -> Appended:
    """Append as a node does that dies before it records the messages' offsets."""
    hashed = await claim(engine, topic, key, messages, (await log.bounds(topic)).end)
    partition = await log._partition(topic)
    return await log._append(partition, messages, asyncio.get_running_loop().time() + 8, hashed)


async def test_a_key_of_an_append_in_doubt_is_neither_new_nor_known(engine: Kafka, log: KafkaLog, topic: TopicId):
    await claim(engine, topic, "k", texts("aaaa"), 0)
    engine.clock.advance(CLAIM_WAIT_MS - 1)

    for each in (texts("aaaa"), texts("bbbb")):
        for call in (log.append(topic, each, key="k"), log.earlier_answer(topic, each, "k")):
            with pytest.raises(LogUnavailable):
                await call
    assert await log.bounds(topic) == Bounds(0, 0)


async def test_a_key_whose_messages_are_nowhere_is_free_for_others(engine: Kafka, log: KafkaLog, topic: TopicId):
    await claim(engine, topic, "k", texts("aaaa"), 0)
    engine.clock.advance(CLAIM_WAIT_MS)

    assert await log.earlier_answer(topic, texts("bbbb"), "k") is None
    answer = await log.append(topic, texts("bbbb"), key="k")

    assert await log.append(topic, texts("bbbb"), key="k") == answer
    with pytest.raises(KeyReused):
        await log.append(topic, texts("aaaa"), key="k")
    assert await log.bounds(topic) == Bounds(0, 1)


async def test_a_key_is_not_free_while_messages_are_not_seen_yet(engine: Kafka, monkeypatch: pytest.MonkeyPatch):
    """One of them may be the append in question."""
    async with engine.open_log(patience=1.0) as log:
        topic = await new_topic(log)
        await claim(engine, topic, "k", texts("aaaa"), 0)
        engine.clock.advance(CLAIM_WAIT_MS)

        asked = log._reader._fetcher.offset

        async def one_unseen(partition: Partition, time: int, until: float, replica: int = CONSUMER) -> Offset:
            return 1 if replica == FOLLOWER else await asked(partition, time, until, replica)

        with monkeypatch.context() as lagging:
            lagging.setattr(log._reader._fetcher, "offset", one_unseen)
            with pytest.raises(LogUnavailable):
                await log.append(topic, texts("bbbb"), key="k")

        assert await log.bounds(topic) == Bounds(0, 0)
        assert (await log.append(topic, texts("bbbb"), key="k")).first == 0


async def test_a_key_whose_messages_are_there_is_not_free(engine: Kafka, log: KafkaLog, topic: TopicId) -> None:
    await stored_but_not_settled(engine, log, topic, "k", texts("aaaa"))
    engine.clock.advance(CLAIM_WAIT_MS)

    for call in (log.append(topic, texts("bbbb"), key="k"), log.earlier_answer(topic, texts("bbbb"), "k")):
        with pytest.raises(KeyReused):
            await call
    assert await log.bounds(topic) == Bounds(0, 1)


async def test_messages_of_a_node_that_died_before_it_noted_them_are_found(engine: Kafka) -> None:
    async with engine.open_log() as log:
        topic = await new_topic(log)
        await log.append(topic, make_messages(0, 50))
        first = await stored_but_not_settled(engine, log, topic, "k", texts("aaaa", "bbbb"))
        await log.append(topic, make_messages(50, 50))

    engine.clock.advance(CLAIM_WAIT_MS)
    async with engine.open_log() as log:
        assert await log.earlier_answer(topic, texts("aaaa", "bbbb"), "k") == first
        assert await log.append(topic, texts("aaaa", "bbbb"), key="k") == first
        assert await log.bounds(topic) == Bounds(0, 102)
        assert (await engine.idempotency.stored_claim(topic, key_hash(topic, b"k"))).appended == first


async def test_an_append_of_a_node_that_died_before_it_sent_it_is_made_by_one_of_those_who_ask(engine: Kafka) -> None:
    async with engine.open_log() as log, engine.open_log() as second:
        topic = await new_topic(log)
        await log.append(topic, make_messages(0, 5))
        await claim(engine, topic, "k", texts("aaaa"), 5)
        engine.clock.advance(CLAIM_WAIT_MS)
        assert await log.earlier_answer(topic, texts("aaaa"), "k") is None

        answers = await asyncio.gather(
            *(each.append(topic, texts("aaaa"), key="k") for each in (log, second)), return_exceptions=True
        )

        made = [each for each in answers if isinstance(each, Appended)]
        assert made
        assert {each.first for each in made} == {5}
        assert all(isinstance(each, Appended | LogUnavailable) for each in answers)
        assert (await log.append(topic, texts("aaaa"), key="k"), await log.bounds(topic)) == (made[0], Bounds(0, 6))


async def test_a_late_process_does_not_give_up_the_claim_of_another(engine: Kafka, monkeypatch: pytest.MonkeyPatch):
    async with engine.open_log(patience=1.0) as log, engine.open_log() as second:
        topic = await new_topic(second)
        hashed = key_hash(topic, b"k")

        async def is_taken_over() -> bool:
            return not (await engine.idempotency.stored_claim(topic, hashed)).age

        async with second.hold_appends(topic):
            async with log.hold_appends(topic):
                slow = asyncio.ensure_future(log.append(topic, texts("aaaa"), key="k"))
                await wait_until_async(lambda: engine.idempotency.stored_claim(topic, hashed))
                engine.clock.advance(CLAIM_WAIT_MS)
                quick = asyncio.ensure_future(second.append(topic, texts("aaaa"), key="k"))
                await wait_until_async(is_taken_over)
                pass_loop_time(monkeypatch, 1.0)
            with pytest.raises(LogUnavailable):  # `Unsent`, unless sending had begun on a slow machine
                await slow
            with pytest.raises(LogUnavailable):
                await log.append(topic, texts("aaaa"), key="k")
        answer = await quick

        assert await second.append(topic, texts("aaaa"), key="k") == answer
        assert await second.bounds(topic) == Bounds(0, 1)


async def test_a_claim_that_could_not_be_settled_is_answered_all_the_same(engine: Kafka, log: KafkaLog, topic: TopicId):
    with fail_calls(engine.idempotency, "settle", RegistryUnavailable):
        first = await log.append(topic, texts("aaaa"), key="k")
    engine.clock.advance(CLAIM_WAIT_MS)
    assert await log.append(topic, texts("aaaa"), key="k") == first


async def test_nobody_waits_long_for_a_claim_nor_for_others_of_its_key(engine: Kafka, monkeypatch: pytest.MonkeyPatch):
    async with engine.open_log(patience=1.0) as log, asyncio.timeout(PATIENCE_SECONDS):
        topic = await new_topic(log)
        await log.append(topic, make_messages(0, 1))
        monkeypatch.setattr(engine.idempotency, "settle", lambda *_: asyncio.Event().wait())

        assert (await log.append(topic, texts("aaaa"), key="k")).first == 1
        async with log.hold_appends(topic):
            callers = [log.append(topic, texts("bbbb"), key="another") for _ in range(3)]
            answers = await asyncio.gather(*callers, return_exceptions=True)
        assert [type(each) for each in answers] == [LogUnavailable] * 3


async def test_a_key_stays_claimed_when_its_topic_is_taken_for_gone(engine: Kafka, log: KafkaLog, topic: TopicId):
    """Its messages may still be stored."""
    async with log.hold_appends(topic):
        appending = asyncio.ensure_future(log.append(topic, texts("aaaa"), key="k"))
        await wait_until_async(lambda: engine.idempotency.stored_claim(topic, key_hash(topic, b"k")))
        log._topics.forget(await log._partition(topic))
    with pytest.raises(TopicGone):
        await appending

    with pytest.raises(LogUnavailable):
        await log.append(topic, texts("aaaa"), key="k")


async def test_without_the_books_no_key_is_taken_and_nothing_is_stored(engine: Kafka, log: KafkaLog, topic: TopicId):
    engine.idempotency.away = True

    with pytest.raises(RegistryUnavailable):
        await log.append(topic, texts("aaaa"), key="k")
    assert (await log.append(topic, texts("bbbb"))).first == 0
    engine.idempotency.away = False
    assert (await log.append(topic, texts("aaaa"), key="k")).first == 1


async def test_a_key_of_an_append_that_was_surely_not_stored_is_free_at_once(engine: Kafka) -> None:
    async with engine.open_log(max_batch_bytes=2**20) as log:
        topic = await new_topic(log)
        broad = make_messages(0, 13_000, size=60)  # within the first rough look, not within a batch
        with pytest.raises(Exception, match="too large"):
            await log.append(topic, broad, key="k")

        assert (await log.append(topic, texts("aaaa"), key="k")).first == 0


async def test_a_key_older_than_the_messages_of_its_topic_is_new_again(engine: Kafka) -> None:
    async with engine.open_log(idempotency_window=HOUR) as log:
        topic = await new_topic(log)
        await log.append(topic, texts("aaaa"), key="k")
        engine.clock.advance(HOUR + 1)

        assert await log.earlier_answer(topic, texts("bbbb"), "k") is None
        assert (await log.append(topic, texts("bbbb"), key="k")).first == 1


async def test_bytes_are_counted_before_and_after_they_are_in_the_store() -> None:
    store, topic = MemoryIdempotencyStore(ManualClock()), new_topic_id()
    sizes = PublishedBytes(store)
    sizes.add(topic, 5)
    sizes.add(topic, 2)
    assert (await sizes.of(topic), await store.bytes_of(topic)) == (7, 0)

    store.away = True
    await sizes.flush()
    sizes.add(topic, 1)  # what the books cannot take now is added the next time
    store.away = False
    await sizes.flush()
    assert (await sizes.of(topic), await store.bytes_of(topic)) == (8, 8)

    sizes.add(topic, 5)
    sizes.forget(topic)  # it is gone, and not counted any longer
    await sizes.flush()
    assert await store.bytes_of(topic) == 8


@pytest.mark.parametrize("flag", [0, 7])
async def test_batches_of_others_that_cannot_be_read_hold_up_no_search(monkeypatch, flag) -> None:
    foreign, ours = batch_of([(None, b"1", [])]), batch_of([(None, b"2", [(KEY, b"k")])])
    foreign[22] |= flag  # 7: a compression that there is not
    ours[7] = 1  # its first offset

    async def fetch_part(*_: object, until: float) -> FetchedPart:
        return FetchedPart(2, bytes(sign_batch(foreign)) + bytes(ours))

    monkeypatch.setattr(keyed_appends, "fetch_part", fetch_part)
    partition = Partition(new_topic_id(), "ams.x")

    found = await find_append(SimpleNamespace(deadline=lambda: 1.0), partition, b"k", Bounds(0, 2), 1)

    assert isinstance(found, Appended)
    assert (found.first, found.count) == (1, 1)
