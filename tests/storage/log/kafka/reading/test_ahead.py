from ams.core.names import Offset, new_topic_id
from ams.storage.log.kafka.reading import ahead as module
from ams.storage.log.kafka.reading.ahead import LEAST, MOST, Ahead
from ams.storage.log.kafka.reading.run import OVERHEAD, Run
from tests.storage.log.kafka.reading.test_run import stored

ONE, TWO = new_topic_id(), new_topic_id()
MESSAGE = OVERHEAD + 10


def run(start, end):
    return Run(Offset(start), Offset(end), stored(*range(start, end)))


async def test_what_was_fetched_ahead_is_found_by_every_offset_of_it():
    ahead = Ahead(1 << 20)
    ahead.keep(ONE, run(10, 20))
    assert ahead.run(ONE, Offset(9)) is None
    assert ahead.run(ONE, Offset(20)) is None
    assert ahead.run(TWO, Offset(15)) is None
    found = ahead.run(ONE, Offset(15))
    assert found is not None
    assert found.start == 10


async def test_what_was_not_used_for_longest_goes_first():
    ahead = Ahead(25 * MESSAGE)
    ahead.keep(ONE, run(0, 10))
    ahead.keep(ONE, run(10, 20))
    assert ahead.run(ONE, Offset(0))
    ahead.keep(TWO, run(0, 10))
    assert ahead.run(ONE, Offset(10)) is None
    assert ahead.run(ONE, Offset(0))
    assert ahead.bytes == 20 * MESSAGE
    ahead.keep(TWO, run(0, 40))  # more than may be held at all
    assert ahead.bytes == 0


async def test_what_begins_at_the_same_place_is_replaced():
    ahead = Ahead(1 << 20)
    ahead.keep(ONE, run(0, 10))
    ahead.keep(ONE, run(0, 5))
    assert ahead.bytes == 5 * MESSAGE
    assert ahead.run(ONE, Offset(7)) is None


async def test_a_topic_is_forgotten_and_what_retention_took_is_let_go():
    ahead = Ahead(1 << 20)
    ahead.keep(ONE, run(0, 10))
    ahead.keep(ONE, run(10, 20))
    ahead.drop_before(ONE, Offset(5))
    assert ahead.run(ONE, Offset(7)) is None
    assert ahead.run(ONE, Offset(10))
    ahead.forget(ONE)
    assert ahead.bytes == 0


async def test_only_a_read_that_begins_where_one_ended_fetches_ahead():
    ahead = Ahead(1 << 30)
    assert ahead.size(ONE, Offset(0)) == 0
    ahead.ended(ONE, Offset(0), Offset(100))
    assert ahead.size(ONE, Offset(100)) == MOST
    assert ahead.size(ONE, Offset(99)) == 0
    assert ahead.size(TWO, Offset(100)) == 0
    ahead.ended(ONE, Offset(100), Offset(200))
    assert ahead.size(ONE, Offset(100)) == 0
    assert ahead.size(ONE, Offset(200)) == MOST


async def test_many_who_read_on_share_the_memory_and_random_reads_take_none_of_it():
    ahead = Ahead(32_000_000)
    for number in range(1000):
        ahead.ended(TWO, Offset(number), Offset(number + 5000))
    assert ahead.size(TWO, Offset(5000)) == MOST
    for number in range(200):
        ahead.ended(ONE, Offset(1000 * number), Offset(1000 * number + 1))
        ahead.ended(ONE, Offset(1000 * number + 1), Offset(1000 * number + 2))
    assert ahead.size(ONE, Offset(2)) == LEAST


async def test_ends_are_forgotten_in_time_and_bounded_in_number(monkeypatch):
    ahead = Ahead(1 << 30)
    monkeypatch.setattr(module, "MAX_ENDS", 2)
    for number in range(3):
        ahead.ended(ONE, Offset(number), Offset(100 + number))
    assert [bool(ahead.size(ONE, Offset(100 + number))) for number in range(3)] == [False, True, True]
    monkeypatch.setattr(module, "REMEMBERED_FOR", -1.0)
    ahead.ended(ONE, Offset(5), Offset(105))
    assert not ahead.size(ONE, Offset(102))
