from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import update

from ams.core.clock import DAY
from ams.core.errors import TopicGone
from ams.core.names import TopicId, new_topic_id
from ams.storage.database.database import is_postgresql
from ams.storage.log.base import Appended
from ams.storage.log.kafka.idempotency_store import Claim
from ams.storage.registry.idempotency import RECENT_CLAIM_MS, IdempotencyRecords
from ams.storage.registry.records import Project, Topic
from ams.storage.registry.registry import Registry
from ams.storage.registry.tables import publish_claims
from tests.storage.registry.makers import new_topic
from tests.support.administration import make_project
from tests.support.clock import ManualClock

KEY, OTHER_KEY = bytes(16), b"k" * 16
CONTENT, OTHER_CONTENT = b"c" * 16, b"o" * 16
END = 7
MINE, OTHERS = "mark-1", "mark-2"
APPEND_ANSWER = Appended(9, 3, 1_700_000_000_123)

Pass = Callable[[int], Awaitable[None]]


@pytest.fixture
def store(registry: Registry) -> IdempotencyRecords:
    return registry.idempotency


@pytest.fixture
async def topic(topic: Topic) -> TopicId:
    return topic.id


@pytest.fixture
def time_passes(registry: Registry, clock: ManualClock, registry_url: str) -> Pass:
    """Let milliseconds pass: on our clock, and for a database with its own clock by moving claims back."""

    async def age_claims(by: int) -> None:
        clock.advance(by)
        if is_postgresql(registry_url):
            change = update(publish_claims).values(claimed_at=publish_claims.c.claimed_at - by)
            await registry._database.put(lambda connection: connection.execute(change))

    return age_claims


async def stored_claim(store: IdempotencyRecords, topic: TopicId, key: bytes = KEY) -> Claim:
    return await store.stored_claim(topic, key)


async def test_the_second_is_told_of_the_first_and_its_messages(store: IdempotencyRecords, topic: TopicId) -> None:
    assert await store.stored_claim(topic, KEY) is None
    assert await store.claim(topic, KEY, CONTENT, END, MINE) is None
    claim = await stored_claim(store, topic)
    assert (claim.content, claim.end, claim.appended) == (CONTENT, END, None)
    assert 0 <= claim.age < 40_000

    second = await store.claim(topic, KEY, b"d" * 16, 99, OTHERS)

    assert (second.content, second.end, second.version) == (CONTENT, END, claim.version)
    assert await store.stored_claim(topic, OTHER_KEY) is None
    assert await store.claim(topic, OTHER_KEY, CONTENT, END, MINE) is None
    await store.settle(topic, KEY, APPEND_ANSWER)

    assert (await stored_claim(store, topic)).appended == APPEND_ANSWER
    assert (await store.claim(topic, KEY, CONTENT, END, OTHERS)).appended == APPEND_ANSWER


async def test_of_many_who_take_over_one_does(store: IdempotencyRecords, topic: TopicId, time_passes: Pass) -> None:
    await store.claim(topic, KEY, CONTENT, END, MINE)
    await time_passes(40_000)
    left = await stored_claim(store, topic)
    assert 40_000 <= left.age < 80_000

    assert await store.take_over(topic, KEY, left, OTHER_CONTENT, OTHERS)
    assert not await store.take_over(topic, KEY, left, CONTENT, "mark-3")

    taken = await stored_claim(store, topic)
    assert taken.version > left.version
    assert taken.age < 40_000
    assert (taken.content, taken.end) == (OTHER_CONTENT, END)


async def test_what_is_settled_is_not_taken_over(store: IdempotencyRecords, topic: TopicId) -> None:
    await store.claim(topic, KEY, CONTENT, END, MINE)
    before = await stored_claim(store, topic)
    await store.settle(topic, KEY, APPEND_ANSWER)

    assert not await store.take_over(topic, KEY, before, CONTENT, OTHERS)
    assert not await store.take_over(topic, KEY, await stored_claim(store, topic), CONTENT, OTHERS)


async def test_a_claim_given_up_is_nobodys_but_a_settled_one_stays(store: IdempotencyRecords, topic: TopicId) -> None:
    await store.claim(topic, KEY, CONTENT, END, MINE)
    await store.release(topic, KEY, MINE)
    assert await store.stored_claim(topic, KEY) is None

    await store.claim(topic, KEY, CONTENT, END, MINE)
    await store.settle(topic, KEY, APPEND_ANSWER)
    await store.release(topic, KEY, MINE)
    assert (await stored_claim(store, topic)).appended == APPEND_ANSWER


async def test_a_slow_one_does_not_give_up_what_another_took_over(store: IdempotencyRecords, topic: TopicId) -> None:
    await store.claim(topic, KEY, CONTENT, END, MINE)
    assert await store.take_over(topic, KEY, await stored_claim(store, topic), CONTENT, OTHERS)

    await store.release(topic, KEY, MINE)

    assert await store.claim(topic, KEY, CONTENT, END, MINE) is not None
    await store.release(topic, KEY, OTHERS)
    assert await store.claim(topic, KEY, CONTENT, END, MINE) is None


async def test_old_claims_go(registry: Registry, store: IdempotencyRecords, topic: TopicId, time_passes: Pass) -> None:
    other = (await new_topic(registry, await make_project(registry, "Q"))).id
    for each in (topic, other):
        await store.claim(each, KEY, CONTENT, END, MINE)
    await time_passes(60_000)
    await store.claim(topic, OTHER_KEY, CONTENT, END, MINE)

    await store.forget_old({topic: 30_000, other: 90_000})

    assert await store.stored_claim(topic, KEY) is None
    assert await store.stored_claim(topic, OTHER_KEY) is not None
    assert await store.stored_claim(other, KEY) is not None


async def test_a_clock_that_leaps_ahead_forgets_no_claim(store: IdempotencyRecords, topic: TopicId, clock: ManualClock):
    await store.claim(topic, KEY, CONTENT, END, MINE)
    clock.step(8 * DAY)

    await store.forget_old({topic: DAY})

    assert 0 <= (await stored_claim(store, topic)).age < 40_000
    assert (await store.claim(topic, KEY, CONTENT, END, OTHERS)).age < 40_000


async def test_more_old_claims_than_one_statement_has_the_time_for_go_in_portions(
    store: IdempotencyRecords, topic: TopicId, time_passes: Pass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ams.storage.registry.idempotency.PORTION", 3)
    keys = [b"%016d" % number for number in range(8)]
    for key in keys:
        await store.claim(topic, key, CONTENT, END, MINE)
    await time_passes(60_000)

    await store.forget_old({topic: 30_000})

    assert [await store.stored_claim(topic, key) for key in keys] == [None] * 8


async def test_old_claims_go_before_their_topic(store: IdempotencyRecords, topic: TopicId, time_passes: Pass) -> None:
    await store.claim(topic, KEY, CONTENT, END, MINE)
    await time_passes(RECENT_CLAIM_MS + 5_000)
    await store.claim(topic, OTHER_KEY, CONTENT, END, MINE)

    await store.delete_old_claims([topic])

    assert await store.stored_claim(topic, KEY) is None
    assert await store.stored_claim(topic, OTHER_KEY) is not None


async def test_bytes_add_up_by_topic(store: IdempotencyRecords, topic: TopicId) -> None:
    assert await store.bytes_of(topic) == 0
    await store.add_bytes({topic: 10, new_topic_id(): 5})
    await store.add_bytes({topic: 2**40})
    assert await store.bytes_of(topic) == (await store.all_bytes())[topic] == 2**40 + 10


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_topic_that_is_gone_takes_its_claims(
    registry: Registry, project: Project, store: IdempotencyRecords, topic: TopicId, is_deleted: bool
) -> None:
    await store.claim(topic, KEY, CONTENT, END, MINE)
    await store.add_bytes({topic: 10})

    await (registry.projects.delete(project.id) if is_deleted else store.forget(topic))

    assert await store.stored_claim(topic, KEY) is None
    assert await store.bytes_of(topic) == 0
    if not is_deleted:
        return
    with pytest.raises(TopicGone):
        await store.claim(topic, KEY, CONTENT, END, MINE)
