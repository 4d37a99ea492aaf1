"""Dead letters: stored once each, whole, and only then acknowledged."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ams.core.clock import publish_time
from ams.core.errors import Conflict, QuotaExceeded, RateLimited, TooLarge
from ams.core.messages import Message, message, parse
from ams.core.names import TopicId, TopicName
from ams.core.push_config import AskedPush, PushConfig, new_push_config
from ams.core.quotas import PUBLISH_BYTES, STORED_BYTES
from ams.push.upstream import Verdict
from ams.service.dead_letters import MAX_REASON, DeadLetters, NotNext
from ams.service.stored_bytes import StoredBytes
from ams.storage.log.base import Appended
from ams.storage.registry.records import Subscription, Topic
from tests.service.interference import interrupt_call
from tests.support.use_cases import SUB, TOPIC, UseCases, open_use_cases

DEAD_LETTER_TOPIC = "dead"
CONFIG = new_push_config(
    AskedPush(mattermost_url="https://chat.example/hooks/x", dead_letter_topic=DEAD_LETTER_TOPIC), lambda: "secret"
)
VERDICT = Verdict("Bad Request", 5, 400)
OTHER_VERDICT = Verdict("connection refused", 6, 0)


@pytest.fixture
async def use_cases(use_cases: UseCases) -> UseCases:
    await prepare_topic(use_cases)
    return use_cases


async def prepare_topic(use_cases: UseCases) -> None:
    await use_cases.engines.topics.create(use_cases.caller, DEAD_LETTER_TOPIC)
    await configure(use_cases, CONFIG)


async def configure(use_cases: UseCases, config: PushConfig | None) -> None:
    here = use_cases.caller.here.id
    await use_cases.engines.registry.subscriptions.change(here, SUB, config=lambda _: config)


async def subscription(use_cases: UseCases) -> Subscription:
    return await use_cases.engines.registry.subscriptions.find(use_cases.caller.here.id, SUB)


async def dead_letter(
    use_cases: UseCases, offset: int, verdict: Verdict = VERDICT, stored: StoredBytes | None = None
) -> None:
    engines = use_cases.engines
    stored = stored or engines.stored
    dead_letters = DeadLetters(engines.registry, engines.log, engines.cursors, engines.counts, stored)
    await dead_letters.dead_letter(await subscription(use_cases), "P", offset, verdict)


async def topic(use_cases: UseCases, name: TopicName = DEAD_LETTER_TOPIC) -> Topic:
    return await use_cases.engines.registry.topics.find(use_cases.caller.here.id, name)


async def letters(use_cases: UseCases) -> Sequence[Message]:
    found = await use_cases.engines.log.read((await topic(use_cases)).id, 0, max_messages=1000, max_bytes=2**24)
    return [parse(each.fragment) for each in found]


async def dead_ids(use_cases: UseCases) -> list[int]:
    return [int(each.attributes["deadLetterMessageId"]) for each in await letters(use_cases)]


async def current_offset(use_cases: UseCases) -> int:
    return (await use_cases.seeker.offsets(use_cases.caller, SUB)).current


async def publish(use_cases: UseCases, *messages: Message) -> Appended:
    return await use_cases.publisher.publish(await topic(use_cases, TOPIC), messages)


async def test_a_letter_is_the_message_and_why_it_is_one(use_cases: UseCases) -> None:
    stored = await publish(use_cases, message("AAEC", {"kind": "seed"}, "bed 4"), message("", {"n": "1"}))

    await dead_letter(use_cases, 0)

    [letter] = await letters(use_cases)
    assert (letter.data, letter.ordering_key) == ("AAEC", "bed 4")
    published = datetime.fromtimestamp(stored.time / 1000, UTC).isoformat(timespec="milliseconds")
    assert letter.attributes == {
        "kind": "seed", "deadLetterSubscription": "projects/P/subscriptions/s",
        "deadLetterSourceTopic": "projects/P/topics/t", "deadLetterMessageId": "0",
        "deadLetterPublishTime": publish_time(stored.time), "deadLetterReason": "Bad Request",
        "deadLetterAttempts": "5", "deadLetterStatus": "400", "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "s", "CloudPubSubDeadLetterSourceSubscriptionProject": "P",
        "CloudPubSubDeadLetterSourceTopicPublishTime": published,
    }  # fmt: skip
    assert await current_offset(use_cases) == 1


async def test_only_that_message_is_acknowledged_and_the_others_can_still_be(use_cases: UseCases) -> None:
    await use_cases.publish(3)
    deliverer = use_cases.deliverer()
    await deliverer.pull(await subscription(use_cases), 3, wait=False)

    await dead_letter(use_cases, 0)

    assert await current_offset(use_cases) == 1
    await use_cases.engines.cursors.acknowledge((await subscription(use_cases)).id, 2, 10_000)
    assert await current_offset(use_cases) == 3
    await use_cases.publish(1)
    await deliverer.pull(await subscription(use_cases), 1, wait=False)
    use_cases.engines.clock.advance(3_600_000)  # whoever has the subscription is bound by no deadline
    await dead_letter(use_cases, 3)
    assert (await dead_ids(use_cases), await current_offset(use_cases)) == ([0, 3], 4)


async def test_asked_again_also_after_a_seek_it_is_put_aside_once(use_cases: UseCases) -> None:
    await use_cases.publish(2)

    await dead_letter(use_cases, 0)
    await asyncio.gather(*(dead_letter(use_cases, 1, verdict) for verdict in (VERDICT, OTHER_VERDICT) * 5))
    assert (await dead_ids(use_cases), await current_offset(use_cases)) == ([0, 1], 2)

    await use_cases.seeker.seek(use_cases.caller, SUB, 0)
    await dead_letter(use_cases, 0, OTHER_VERDICT)
    assert (await dead_ids(use_cases), await current_offset(use_cases)) == ([0, 1], 1)


async def test_a_message_does_not_go_back_into_its_own_topic(use_cases: UseCases) -> None:
    await use_cases.publish(1)
    await configure(use_cases, replace(CONFIG, dead_letter_topic="t"))

    with pytest.raises(Conflict, match="^A subscription's own topic cannot be its deadLetterTopic$"):
        await dead_letter(use_cases, 0)

    assert await current_offset(use_cases) == 0


async def test_the_topic_made_anew_has_letters_of_its_own(use_cases: UseCases) -> None:
    """Message ids start again, but not idempotency keys."""
    for _ in range(2):
        await use_cases.publish(1)
        await dead_letter(use_cases, 0)
        await use_cases.engines.topics.delete(use_cases.caller, TOPIC)
        await use_cases.engines.topics.create(use_cases.caller, TOPIC)

    assert await dead_ids(use_cases) == [0, 0]


@pytest.mark.parametrize(("to", "told"), [(4, contextlib.nullcontext()), (0, pytest.raises(NotNext))])
async def test_a_seek_meanwhile_wins(use_cases: UseCases, to: int, told: contextlib.AbstractContextManager[object]):
    await use_cases.publish(5)

    async def seek() -> None:
        await use_cases.seeker.seek(use_cases.caller, SUB, to)

    with told, interrupt_call(use_cases.engines.log, "append", after=seek):
        await dead_letter(use_cases, 0)

    assert (await dead_ids(use_cases), await current_offset(use_cases)) == ([0], to)


@pytest.mark.parametrize("reason", ["x" * 100_000, "one\r\ntwo\t three", "half a \ud800 pair", ""])
async def test_any_reason_can_be_stored_on_one_line(use_cases: UseCases, reason: str) -> None:
    await use_cases.publish(1)

    await dead_letter(use_cases, 0, Verdict(reason, 1, 500))

    [letter] = await letters(use_cases)
    kept = letter.attributes["deadLetterReason"]
    assert len(kept) <= MAX_REASON
    assert kept.isprintable()
    assert kept[:3] == reason[:3]


async def test_an_oversized_one_goes_without_its_reason(use_cases: UseCases, monkeypatch: pytest.MonkeyPatch) -> None:
    await publish(use_cases, message("A" * 1000))
    log_append, most = use_cases.engines.log.append, 1000

    async def append(to: TopicId, messages: Sequence[Message], *, key: str | None = None) -> Appended:
        if any(len(each.fragment) > most for each in messages):
            raise TooLarge
        return await log_append(to, messages, key=key)

    monkeypatch.setattr(use_cases.engines.log, "append", append)
    verdict = Verdict("x" * MAX_REASON, 1, 500)
    with pytest.raises(TooLarge, match="^Message is too large for the dead letter topic$"):
        await dead_letter(use_cases, 0, verdict)
    assert await current_offset(use_cases) == 0
    most = 1800
    await dead_letter(use_cases, 0, verdict)

    [letter] = await letters(use_cases)
    assert "deadLetterReason" not in letter.attributes
    assert letter.attributes["deadLetterStatus"] == "500"
    assert await current_offset(use_cases) == 1


async def test_letters_are_counted_and_the_access_list_of_their_topic_is_not_asked(use_cases: UseCases) -> None:
    await use_cases.publish(1)
    await use_cases.engines.topics.change_access_list(use_cases.caller, DEAD_LETTER_TOPIC, [])

    await dead_letter(use_cases, 0)

    assert await dead_ids(use_cases) == [0]
    assert (await topic(use_cases)).id in use_cases.engines.counts.published
    assert (await subscription(use_cases)).id in use_cases.engines.counts.acknowledged_at


class ProcessKilled(BaseException):
    """The process is gone."""


@contextlib.contextmanager
def kill_at(engine: object, step: str, *, after: bool) -> Iterator[None]:
    """Kill the process before, or right after, a step; the step may be unreachable, if its work is done."""

    async def die() -> None:
        raise ProcessKilled

    with (
        contextlib.suppress(ProcessKilled),
        interrupt_call(engine, step, after=die) if after else interrupt_call(engine, step, die),
    ):
        yield


STEPS = [("log", "append"), ("cursors", "hand_out"), ("cursors", "acknowledge")]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kills=st.lists(st.tuples(st.sampled_from(STEPS), st.booleans(), st.booleans()), max_size=5))
async def test_each_is_put_aside_once_wherever_it_is_killed(
    kills: list[tuple[tuple[str, str], bool, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A law: after a kill at any moment and a restart, every dead letter is there once and in order."""
    async with open_use_cases(tmp_path_factory.mktemp("use_cases")) as use_cases:
        await prepare_topic(use_cases)
        await use_cases.publish(3)
        for (engine, step), after, again in kills:
            where = await current_offset(use_cases)
            if where == 3:
                break
            with kill_at(getattr(use_cases.engines, engine), step, after=after):
                await dead_letter(use_cases, where, OTHER_VERDICT if again else VERDICT)
        for offset in range(3):
            await dead_letter(use_cases, offset)

        assert (await dead_ids(use_cases), await current_offset(use_cases)) == ([0, 1, 2], 3)


@pytest.mark.parametrize("quota", [STORED_BYTES, PUBLISH_BYTES])
async def test_what_a_quota_has_no_room_for_is_not_put_aside_and_stays_the_next(use_cases: UseCases, quota: str):
    engines = use_cases.engines
    stored = StoredBytes(engines.registry, engines.log, engines.clock)
    await use_cases.publish(2)
    stored.follow(use_cases.caller.here.id, {quota: 1})
    if quota == PUBLISH_BYTES:
        stored.take(await topic(use_cases), 10_000)
    for _ in range(2):
        with pytest.raises((QuotaExceeded, RateLimited), match=f"Quota {quota} of the project is exceeded"):
            await dead_letter(use_cases, 0, stored=stored)
    assert (await dead_ids(use_cases), await current_offset(use_cases)) == ([], 0)

    stored.follow(use_cases.caller.here.id, {})
    await dead_letter(use_cases, 0, stored=stored)
    assert (await dead_ids(use_cases), await current_offset(use_cases)) == ([0], 1)


async def test_a_letter_that_is_there_needs_no_room(use_cases: UseCases) -> None:
    engines = use_cases.engines
    stored = StoredBytes(engines.registry, engines.log, engines.clock)
    await use_cases.publish(1)
    await dead_letter(use_cases, 0, stored=stored)
    await use_cases.seeker.seek(use_cases.caller, SUB, 0)
    stored.follow(use_cases.caller.here.id, {STORED_BYTES: 1})
    await dead_letter(use_cases, 0, OTHER_VERDICT, stored=stored)
    await use_cases.seeker.seek(use_cases.caller, SUB, 0)
    await dead_letter(use_cases, 0, stored=stored)
    assert (await dead_ids(use_cases), await current_offset(use_cases)) == ([0], 1)
