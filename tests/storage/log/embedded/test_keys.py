"""Idempotency keys: known for the window, on disk, and in memory only for the segments being written."""

import asyncio
from collections.abc import Sequence
from hashlib import blake2b
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import KeyReused
from ams.core.messages import Fragment, Message, batch_of, message
from ams.storage.log import base
from ams.storage.log.base import Bounds, content_hash, is_content
from ams.storage.log.embedded import state
from tests.storage.log.engines import HOUR, Embedded, new_topic, texts

DAY = 24 * HOUR


@pytest.fixture
def engine() -> Embedded:
    return Embedded()


async def test_a_key_older_than_the_window_counts_as_new(engine: Embedded) -> None:
    async with engine.opened(idempotency_window=HOUR) as log:
        topic = await new_topic(log)
        first = await log.append(topic, texts("a"), key="k")
        engine.clock.advance(HOUR)
        assert await log.append(topic, texts("a"), key="k") == first
        with pytest.raises(KeyReused):
            await log.append(topic, texts("b"), key="k")

        engine.clock.advance(1)
        second = await log.append(topic, texts("b"), key="k")

        assert (first.first, second.first) == (0, 1)
        assert await log.append(topic, texts("b"), key="k") == second


async def test_the_window_holds_after_a_restart(engine: Embedded) -> None:
    async with engine.opened(idempotency_window=HOUR) as log:
        topic = await new_topic(log)
        await log.append(topic, texts("a"), key="k")
        engine.clock.advance(HOUR + 1)
        second = await log.append(topic, texts("a"), key="k")

    async with engine.opened(idempotency_window=HOUR) as log:
        assert await log.append(topic, texts("a"), key="k") == second
        engine.clock.advance(HOUR + 1)
        assert (await log.append(topic, texts("a"), key="k")).first == 2


async def test_without_a_window_a_key_is_known_as_long_as_its_topic_keeps_messages(engine: Embedded) -> None:
    async with engine.opened(retention=DAY) as log:
        topic = await new_topic(log)
        first = await log.append(topic, texts("a"), key="k")
        engine.clock.advance(DAY)
        assert await log.append(topic, texts("a"), key="k") == first

        await log.set_retention(topic, HOUR)

        assert (await log.append(topic, texts("a"), key="k")).first == 1


async def test_a_key_is_found_in_the_class_its_topic_was_in_before(engine: Embedded) -> None:
    async with engine.opened(retention=DAY, idempotency_window=DAY) as log:
        topic = await new_topic(log)
        first = await log.append(topic, texts("a"), key="k")

        await log.set_retention(topic, 300 * DAY)

        assert await log.append(topic, texts("a"), key="k") == first


async def test_memory_does_not_grow_with_the_number_of_keys(engine: Embedded) -> None:
    """Keys of sealed segments are on disk: a segment is sealed after so many, however small its messages are."""
    async with engine.opened(segment_keys=50) as log:
        topic = await new_topic(log)
        answers = []
        for number in range(400):
            answers.append(await log.append(topic, texts(str(number)), key=str(number)))
            if number % 50 == 49:
                await log.retain()

        held = sum(len(each.entries.keys) for each in log._state.catalog if each.entries is not None)

        assert held <= 50
        assert [await log.append(topic, texts(str(number)), key=str(number)) for number in range(400)] == answers
        assert await log.bounds(topic) == Bounds(0, 400)


async def test_keys_of_an_open_segment_count_after_a_restart(engine: Embedded) -> None:
    async with engine.opened(segment_keys=10) as log:
        topic = await new_topic(log)
        for number in range(9):
            await log.append(topic, texts("a"), key=str(number))

    async with engine.opened(segment_keys=10) as log:
        for number in range(9, 12):
            await log.append(topic, texts("a"), key=str(number))

        assert len(list(log._state.catalog)) == 2


async def test_a_key_is_free_again_when_its_caller_leaves_while_the_topic_is_held(engine: Embedded) -> None:
    async with engine.opened() as log:
        topic = await new_topic(log)
        async with log.held(topic):
            leaving = asyncio.ensure_future(log.append(topic, texts("a"), key="k"))
            while not log._state.keys:
                await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.wait((leaving,))

        async with asyncio.timeout(30):
            assert (await log.append(topic, texts("b"), key="k")).first == 0


@pytest.mark.parametrize("is_in_order", [True, False], ids=["attributes in order", "attributes as sent"])
async def test_what_an_earlier_version_remembered_of_a_content_stays_valid(
    engine: Embedded, monkeypatch: pytest.MonkeyPatch, is_in_order: bool
) -> None:
    """It was a BLAKE2b hash, at first with the attributes in the order in which they were sent."""

    def earlier_hash(messages: Sequence[Message]) -> bytes:
        batch = batch_of(messages)
        hashed = blake2b(digest_size=16)
        for fragment in batch.in_order() if is_in_order else batch.fragments:
            hashed.update(len(fragment).to_bytes(8, "little") + fragment)
        return hashed.digest()

    sent = [message("a", {"y": "1", "x": "2"}), message("b")]
    async with engine.opened() as log:
        topic = await new_topic(log)
        with monkeypatch.context() as earlier:
            earlier.setattr(state, "content_hash", earlier_hash)
            first = await log.append(topic, sent, key="k")

    async with engine.opened() as log:
        assert await log.append(topic, sent, key="k") == first
        with pytest.raises(KeyReused):
            await log.append(topic, [message("a", {"y": "1", "x": "3"}), message("b")], key="k")


async def test_what_another_process_remembered_of_a_content_stays_valid(
    engine: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process sums up contents with a secret of its own, which it notes beside the sum."""
    async with engine.opened() as log:
        topic = await new_topic(log)
        first = await log.append(topic, texts("a"), key="k")

    other = bytes(8)
    monkeypatch.setattr(base, "_SECRET", other)
    monkeypatch.setattr(base, "_MAC", base._mac(other))
    async with engine.opened() as log:
        assert await log.append(topic, texts("a"), key="k") == first
        with pytest.raises(KeyReused):
            await log.append(topic, texts("b"), key="k")
        assert (await log.append(topic, texts("a"), key="l")).first == 1


@given(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=4), st.randoms(), st.text(max_size=5))
def test_a_message_has_one_hash_in_whatever_order_its_attributes_come(
    attributes: dict[str, str], random: Random, data: str
) -> None:
    names = list(attributes)
    random.shuffle(names)
    sent = [message(data, {name: attributes[name] for name in names})]

    assert content_hash(sent) == content_hash([message(data, attributes)])
    assert is_content(content_hash([message(data, attributes)]), sent)


MESSAGES = st.lists(
    st.builds(message, st.text(max_size=4), st.dictionaries(st.sampled_from("xy"), st.text(max_size=2))), max_size=4
)


@given(MESSAGES, MESSAGES)
def test_contents_have_one_hash_when_they_are_the_same_messages_and_only_then(
    one: list[Message], other: list[Message]
) -> None:
    is_same = [(dict(each.attributes), each.data) for each in one] == [(dict(e.attributes), e.data) for e in other]

    assert (content_hash(one) == content_hash(other)) is is_same
    assert is_content(content_hash(one), other) is is_same


@given(st.text("0123456789", min_size=2, max_size=8), st.data())
def test_messages_that_are_cut_elsewhere_have_another_hash(text: str, data: st.DataObject) -> None:
    """Even if what is between them were left out of the sum."""
    cut = data.draw(st.integers(1, len(text) - 1))
    fragments = [Fragment(text.encode())], [Fragment(text[:cut].encode()), Fragment(text[cut:].encode())]
    one, two = (content_hash([Message({}, "", each) for each in every]) for every in fragments)

    assert one != two
