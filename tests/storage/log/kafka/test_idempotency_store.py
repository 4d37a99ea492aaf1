from ams.core.clock import ManualClock
from ams.core.names import new_topic_id
from ams.storage.log.kafka.idempotency_store import PublishedBytes
from tests.storage.log.idempotency_store import MemoryIdempotencyStore


async def test_bytes_are_counted_before_and_after_they_are_in_the_store():
    store, topic = MemoryIdempotencyStore(ManualClock()), new_topic_id()
    sizes = PublishedBytes(store)
    sizes.add(topic, 5)
    sizes.add(topic, 2)
    assert (await sizes.of(topic), await store.bytes_of(topic)) == (7, 0)

    await sizes.flush()
    assert (await sizes.of(topic), await store.bytes_of(topic)) == (7, 7)


async def test_what_the_books_cannot_take_now_is_added_the_next_time():
    store, topic = MemoryIdempotencyStore(ManualClock()), new_topic_id()
    sizes = PublishedBytes(store)
    sizes.add(topic, 5)
    store.away = True
    await sizes.flush()
    sizes.add(topic, 1)
    store.away = False

    await sizes.flush()
    assert await store.bytes_of(topic) == 6


async def test_a_topic_that_is_gone_is_not_counted_any_longer():
    store, topic = MemoryIdempotencyStore(ManualClock()), new_topic_id()
    sizes = PublishedBytes(store)
    sizes.add(topic, 5)
    sizes.forget(topic)
    await sizes.flush()
    assert await store.bytes_of(topic) == 0
