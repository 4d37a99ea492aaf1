"""Live views as events: whatever a message holds, it comes out of the stream as it went in."""

import json
from collections.abc import AsyncGenerator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.clock import Milliseconds
from ams.core.errors import TopicGone
from ams.core.messages import Stored, message
from ams.core.names import Offset
from ams.http.routes import watching
from ams.http.routes.watching import events
from ams.service.live import Tail
from ams.wire.service import Counts
from tests.support.events import read_events

TEXTS = st.text(max_size=30) | st.sampled_from(
    ["\n\n", "\r", "\r\n", "data: x", "\u2028", "\nevent: end\ndata: {}\n\n"]
)
COUNTS = Counts("2024-03-05T10:20:30.123Z", {}, {})


async def written(*seen: Counts | Tail | None) -> bytes:
    async def view() -> AsyncGenerator[Counts | Tail | None]:
        for each in seen:
            yield each

    return b"".join([each async for each in events(view())])


@given(
    st.lists(st.tuples(TEXTS, st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=3)), max_size=5), st.integers(0, 9)
)
async def test_messages_come_out_as_they_went_in_whatever_they_hold(
    sent: Sequence[tuple[str, dict[str, str]]], skipped: int
) -> None:
    stored = [
        Stored(Offset(7 + number), Milliseconds(1_700_000_000_000), message(data, attributes).fragment)
        for number, (data, attributes) in enumerate(sent)
    ]

    found = read_events(await written(Tail(stored, skipped)))

    said = [json.loads(data) for name, data in found if name == "skipped"]
    assert said == ([{"messages": skipped}] if skipped else [])
    shown = [json.loads(data) for name, data in found if name == "message"]
    assert len(shown) + len(said) == len(found)
    assert [each["offset"] for each in shown] == [each.offset for each in stored]
    assert [each["message"]["messageId"] for each in shown] == [str(each.offset) for each in stored]
    assert [(each["message"]["data"], each["message"].get("attributes", {})) for each in shown] == list(sent)


async def test_a_comment_comes_only_after_a_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await written(COUNTS, None, None)).count(b":\n\n") == 0

    monkeypatch.setattr(watching, "SILENCE", 0)
    assert (await written(COUNTS, None, None)).endswith(b"\n\n:\n\n:\n\n")


async def test_what_ends_a_view_is_its_last_event_and_what_refuses_it_is_raised() -> None:
    async def view(*first: Counts) -> AsyncGenerator[Counts | Tail | None]:
        for each in first:
            yield each
        raise TopicGone

    found = read_events(b"".join([each async for each in events(view(COUNTS))]))

    assert [name for name, _ in found] == ["counts", "end"]
    assert json.loads(found[-1][1]) == {"reason": "Topic doesn't exist", "code": 404}
    with pytest.raises(TopicGone):
        [each async for each in events(view())]
