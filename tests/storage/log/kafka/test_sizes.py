from ams.core.clock import ManualClock
from ams.core.names import new_topic_id
from ams.storage.log.kafka.sizes import Sizes
from tests.storage.log.books import MemoryBooks


async def test_bytes_are_told_before_and_after_they_are_in_the_books():
    books, topic = MemoryBooks(ManualClock()), new_topic_id()
    sizes = Sizes(books)
    sizes.add(topic, 5)
    sizes.add(topic, 2)
    assert (await sizes.of(topic), await books.bytes_of(topic)) == (7, 0)

    await sizes.flush()
    assert (await sizes.of(topic), await books.bytes_of(topic)) == (7, 7)


async def test_what_the_books_cannot_take_now_is_added_the_next_time():
    books, topic = MemoryBooks(ManualClock()), new_topic_id()
    sizes = Sizes(books)
    sizes.add(topic, 5)
    books.away = True
    await sizes.flush()
    sizes.add(topic, 1)
    books.away = False

    await sizes.flush()
    assert await books.bytes_of(topic) == 6


async def test_a_topic_that_is_gone_is_not_counted_any_longer():
    books, topic = MemoryBooks(ManualClock()), new_topic_id()
    sizes = Sizes(books)
    sizes.add(topic, 5)
    sizes.forget(topic)
    await sizes.flush()
    assert await books.bytes_of(topic) == 0
