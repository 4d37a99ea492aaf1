"""Messages put aside: once each, whole, and only then acknowledged."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ams.core.clock import Milliseconds, publish_time
from ams.core.errors import Conflict, CursorsUnavailable, NotAllowed, SubscriptionGone, TooLarge
from ams.core.messages import Message, message, parse
from ams.core.names import Offset, SubscriptionId, SubscriptionName, TopicId, TopicName
from ams.core.push_config import AskedPush, PushConfig, created
from ams.push.upstream import Verdict
from ams.service.push.dead_letters import MAX_REASON, DeadLetters, NotNext
from ams.storage.cursors.sqlite import SqliteCursors
from ams.storage.log.base import Appended
from ams.storage.log.embedded import EmbeddedLog
from ams.storage.registry.records import Subscription, Topic
from tests.support.house import SUB, TOPIC, House, open_house

DEAD = TopicName("dead")
CONFIG = created(AskedPush(mattermost_url="https://chat.example/hooks/x", dead_letter_topic=DEAD), lambda: "secret")
VERDICT = Verdict("Bad Request", 5, 400)
OTHER = Verdict("connection refused", 6, 0)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as made:
        await furnish(made)
        yield made


async def furnish(house: House) -> None:
    await house.engines.topics.create(house.caller, DEAD)
    await configure(house, CONFIG)


async def configure(house: House, config: PushConfig | None) -> None:
    here = house.caller.here.id
    await house.engines.registry.subscriptions.change_push(here, SUB, lambda _: config, None)


def dead_letters(house: House) -> DeadLetters:
    engines = house.engines
    return DeadLetters(engines.registry, engines.log, engines.cursors, engines.counts)


async def subscription(house: House) -> Subscription:
    found = await house.engines.registry.subscriptions.find(house.caller.here.id, SUB)
    assert found is not None
    return found


async def dead_letter(house: House, offset: int, verdict: Verdict = VERDICT) -> None:
    await dead_letters(house).dead_letter(await subscription(house), "P", Offset(offset), verdict)


async def topic(house: House, name: TopicName = DEAD) -> Topic:
    found = await house.engines.registry.topics.find(house.caller.here.id, name)
    assert found is not None
    return found


async def letters(house: House) -> Sequence[Message]:
    found = await house.engines.log.read((await topic(house)).id, Offset(0), max_messages=1000, max_bytes=2**24)
    return [parse(each.fragment) for each in found]


async def dead_ids(house: House) -> list[int]:
    return [int(each.attributes["deadLetterMessageId"]) for each in await letters(house)]


async def standing(house: House) -> int:
    return (await house.seeker.offsets(house.caller, SUB)).current


async def publish(house: House, *messages: Message) -> Appended:
    return await house.publisher.publish(await topic(house, TOPIC), messages)


async def test_a_letter_is_the_message_and_why_it_is_one(house: House) -> None:
    stored = await publish(house, message("AAEC", {"kind": "seed"}), message("", {"n": "1"}))

    await dead_letter(house, 0)

    [letter] = await letters(house)
    assert letter.data == "AAEC"
    assert letter.attributes == {
        "kind": "seed",
        "deadLetterSubscription": "projects/P/subscriptions/s",
        "deadLetterSourceTopic": "projects/P/topics/t",
        "deadLetterMessageId": "0",
        "deadLetterPublishTime": publish_time(stored.time),
        "deadLetterReason": "Bad Request",
        "deadLetterAttempts": "5",
        "deadLetterStatus": "400",
    }
    assert await standing(house) == 1


async def test_only_that_message_is_acknowledged_and_the_others_can_still_be(house: House) -> None:
    await house.publish(3)
    deliverer = house.deliverer()
    await deliverer.pull(await subscription(house), 3, wait=False)

    await dead_letter(house, 0)

    assert await standing(house) == 1
    await house.engines.cursors.acknowledge((await subscription(house)).id, Offset(2), Milliseconds(10_000))
    assert await standing(house) == 3
    assert await dead_ids(house) == [0]


async def test_a_deadline_that_has_passed_does_not_matter_to_who_has_the_subscription(house: House) -> None:
    await house.publish(1)
    await house.deliverer().pull(await subscription(house), 1, wait=False)
    house.engines.clock.advance(3_600_000)

    await dead_letter(house, 0)

    assert await standing(house) == 1


async def test_asked_again_it_is_put_aside_once(house: House) -> None:
    await house.publish(2)

    for verdict in (VERDICT, OTHER, VERDICT):
        await dead_letter(house, 0, verdict)
    await asyncio.gather(*(dead_letter(house, 1, verdict) for verdict in (VERDICT, OTHER) * 5))

    assert await dead_ids(house) == [0, 1]
    assert await standing(house) == 2


@pytest.mark.parametrize("offset", [1, 2, 7])
async def test_what_is_not_the_next_message_is_not_put_aside(house: House, offset: int) -> None:
    await house.publish(2)

    with pytest.raises(NotNext, match="^Message is not the next one of the subscription$"):
        await dead_letter(house, offset)

    assert (await dead_ids(house), await standing(house)) == ([], 0)


async def test_without_its_topic_nothing_is_lost_and_with_it_all_goes_on(house: House) -> None:
    await house.publish(1)
    await house.engines.topics.delete(house.caller, DEAD)

    with pytest.raises(Conflict, match="^Dead letter topic doesn't exist$"):
        await dead_letter(house, 0)
    assert await standing(house) == 0
    await house.engines.topics.create(house.caller, DEAD)
    await dead_letter(house, 0)

    assert (await dead_ids(house), await standing(house)) == ([0], 1)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "^Subscription has no dead letter topic$"),
        (replace(CONFIG, dead_letter_topic=""), "^Subscription has no dead letter topic$"),
        (replace(CONFIG, dead_letter_topic="t"), "^A subscription's own topic cannot be its deadLetterTopic$"),
    ],
)
async def test_without_a_place_for_it_a_message_stays(house: House, config: PushConfig | None, reason: str) -> None:
    await house.publish(1)
    await configure(house, config)

    with pytest.raises(Conflict, match=reason):
        await dead_letter(house, 0)

    assert await standing(house) == 0


async def test_a_topic_that_is_gone_is_told(house: House) -> None:
    await house.publish(1)
    found = await subscription(house)
    await house.engines.topics.delete(house.caller, TOPIC)

    with pytest.raises(Conflict, match="^Subscription's topic doesn't exist$"):
        await dead_letters(house).dead_letter(found, "P", Offset(0), VERDICT)


async def test_the_topic_made_anew_has_letters_of_its_own(house: House) -> None:
    """The ids begin again, but not the keys."""
    for _ in range(2):
        await house.publish(1)
        await dead_letter(house, 0)
        await house.engines.topics.delete(house.caller, TOPIC)
        await house.engines.topics.create(house.caller, TOPIC)

    assert await dead_ids(house) == [0, 0]


async def test_a_message_moved_back_to_is_not_put_aside_twice(house: House) -> None:
    await house.publish(2)
    await dead_letter(house, 0)
    await house.seeker.seek(house.caller, SUB, 0)

    await dead_letter(house, 0, OTHER)

    assert (await dead_ids(house), await standing(house)) == ([0], 1)


class Seeking:
    """A log that is so slow to append that somebody moves the subscription meanwhile."""

    def __init__(self, house: House, to: int) -> None:
        self._house = house
        self._to = to

    def __getattr__(self, name: str) -> object:
        return getattr(self._house.engines.log, name)

    async def append(self, to: TopicId, messages: Sequence[Message], *, key: str | None = None) -> Appended:
        appended = await self._house.engines.log.append(to, messages, key=key)
        await self._house.seeker.seek(self._house.caller, SUB, self._to)
        return appended


@pytest.mark.parametrize(("to", "told"), [(4, contextlib.nullcontext()), (0, pytest.raises(NotNext))])
async def test_a_seek_meanwhile_wins(house: House, to: int, told: contextlib.AbstractContextManager[object]) -> None:
    await house.publish(5)
    sought = replace(dead_letters(house), log=Seeking(house, to))  # type: ignore[arg-type]

    with told:
        await sought.dead_letter(await subscription(house), "P", Offset(0), VERDICT)

    assert (await dead_ids(house), await standing(house)) == ([0], to)


async def test_letters_are_counted_as_published_and_acknowledged(house: House) -> None:
    await house.publish(1)

    await dead_letter(house, 0)

    assert (await topic(house)).id in house.engines.counts.published
    assert (await subscription(house)).id in house.engines.counts.acknowledged


@pytest.mark.parametrize("reason", ["x" * 100_000, "one\r\ntwo\t three", "half a \ud800 pair", ""])
async def test_any_reason_can_be_stored_on_one_line(house: House, reason: str) -> None:
    await house.publish(1)

    await dead_letter(house, 0, Verdict(reason, 1, 500))

    [letter] = await letters(house)
    kept = letter.attributes["deadLetterReason"]
    assert len(kept) <= MAX_REASON
    assert kept.isprintable()
    assert kept[:3] == reason[:3]


class Narrow:
    """A log that takes messages of so many bytes."""

    def __init__(self, log: EmbeddedLog, most: int) -> None:
        self._log = log
        self._most = most

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, to: TopicId, messages: Sequence[Message], *, key: str | None = None) -> Appended:
        if any(len(each.fragment) > self._most for each in messages):
            raise TooLarge
        return await self._log.append(to, messages, key=key)


async def test_one_that_does_not_fit_goes_without_its_reason_and_waits_if_that_is_not_enough(house: House) -> None:
    await publish(house, message("A" * 1000))
    reason = Verdict("x" * MAX_REASON, 1, 500)

    for most, fits in ((1000, False), (1500, True)):
        letting = replace(dead_letters(house), log=Narrow(house.engines.log, most))  # type: ignore[arg-type]
        if fits:
            await letting.dead_letter(await subscription(house), "P", Offset(0), reason)
        else:
            with pytest.raises(TooLarge, match="^Message is too large for the dead letter topic$"):
                await letting.dead_letter(await subscription(house), "P", Offset(0), reason)
            assert await standing(house) == 0

    [letter] = await letters(house)
    assert "deadLetterReason" not in letter.attributes
    assert letter.attributes["deadLetterStatus"] == "500"
    assert await standing(house) == 1


async def test_the_schema_and_the_access_list_of_the_topic_are_not_asked(house: House) -> None:
    await house.publish(1)
    await house.engines.topics.set_access_list(house.caller, DEAD, [])

    await dead_letter(house, 0)

    assert await dead_ids(house) == [0]


async def test_a_worker_elsewhere_is_bound_as_by_a_pull(house: House) -> None:
    await house.publish(1)
    stranger = replace(house.caller, roles=frozenset({"consumer"}))
    use_case = dead_letters(house)

    with pytest.raises(NotAllowed):
        await use_case.dead_letter_for(stranger, SUB, Offset(0), VERDICT)
    with pytest.raises(SubscriptionGone):
        await use_case.dead_letter_for(house.caller, SubscriptionName("none"), Offset(0), VERDICT)
    await use_case.dead_letter_for(house.caller, SUB, Offset(0), VERDICT)

    assert await dead_ids(house) == [0]


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """Cursors or a log of a process that is killed before, or right after, a step."""

    def __init__(self, engine: SqliteCursors | EmbeddedLog, step: str, *, after: bool) -> None:
        self._engine = engine
        self._step = step
        self._after = after

    def __getattr__(self, name: str) -> object:
        method = getattr(self._engine, name)
        if name != self._step:
            return method

        async def dying(*given: object, **more: object) -> None:
            if self._after:
                await method(*given, **more)
            raise Killed

        return dying


STEPS = [("log", "append"), ("cursors", "hand_out"), ("cursors", "acknowledge")]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kills=st.lists(st.tuples(st.sampled_from(STEPS), st.booleans(), st.booleans()), max_size=5))
async def test_each_is_put_aside_once_wherever_it_is_killed(
    kills: list[tuple[tuple[str, str], bool, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A law: whatever is killed when, opened again, every letter is there once and in order."""
    folder = tmp_path_factory.mktemp("house")
    async with open_house(folder) as house:
        await furnish(house)
        await house.publish(3)
        for (engine, step), after, again in kills:
            where = await standing(house)
            if where == 3:
                break
            mortal = Mortal(getattr(house.engines, engine), step, after=after)
            dying = replace(dead_letters(house), **{engine: mortal})
            with contextlib.suppress(Killed):  # a step may not be come to, as what it would do is done
                await dying.dead_letter(await subscription(house), "P", Offset(where), OTHER if again else VERDICT)
        for offset in range(3):
            await dead_letter(house, offset)

        assert await dead_ids(house) == [0, 1, 2]
        assert await standing(house) == 3


async def test_cursors_that_cannot_store_leave_the_message_to_be_asked_for_again(house: House) -> None:
    await house.publish(1)

    class Full:
        def __getattr__(self, name: str) -> object:
            return getattr(house.engines.cursors, name)

        async def acknowledge(self, of: SubscriptionId, last: Offset, deadline: Milliseconds) -> None:
            raise CursorsUnavailable

    with pytest.raises(CursorsUnavailable):
        await replace(dead_letters(house), cursors=Full()).dead_letter(  # type: ignore[arg-type]
            await subscription(house), "P", Offset(0), VERDICT
        )
    assert await standing(house) == 0
    await dead_letter(house, 0, OTHER)

    assert await dead_ids(house) == [0]
