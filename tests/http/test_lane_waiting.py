"""Requests on the lane that wait, for the disk or for a message, and what goes on beside them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ams.core.observing import REQUEST
from ams.http.auditing import Auditor
from ams.http.lane import MOST_AT_ONCE
from ams.http.messages import MessageReader
from ams.service.counting import Counts
from ams.service.delivering import Deliverer
from ams.storage.cursors.sqlite import SqliteCursors
from tests.support.held_disk import HeldDisk
from tests.support.hot_packets import KEY, MESSAGE, NOW, PUBLISH, PULL, said
from tests.support.line import Line
from tests.support.rounds import at_once
from tests.support.two_ways import Way, one_way, request
from tests.support.waiting import wait_until_async

PULL_LATER = said(PULL, b"{}")


@pytest.fixture
async def way(tmp_path: Path) -> AsyncIterator[Way]:
    async with one_way(tmp_path / "data", lane=True, pull_wait=0.3, keep_alive_seconds=75.0) as opened:
        await warmed(opened)
        yield opened


async def warmed(way: Way) -> None:
    """Make the heads of a publish and a pull known, and drop what was published."""
    await way.told([said(PUBLISH, MESSAGE)])
    await way.told([said(PULL, NOW)])
    ids = b'{"ackIds":["projects/P/subscriptions/S:0"]}'
    await way.told([request("POST", "/projects/P/subscriptions/S:acknowledge", ids)])


@pytest.fixture
def far_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let positions of subscriptions be asked for, as in a database on another machine."""
    found = SqliteCursors.position

    async def later(cursors: SqliteCursors, *place: Any) -> Any:
        await asyncio.sleep(0)
        return await found(cursors, *place)

    monkeypatch.setattr(SqliteCursors, "position", later)


def requests_at(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, known: list[bytes] | None = None
) -> list[bytes]:
    """Note the ids of requests in which a function is called."""
    function, found = getattr(place, name), [] if known is None else known

    def watched(*given: Any, **named: Any) -> Any:
        found.append(REQUEST.get())
        return function(*given, **named)

    monkeypatch.setattr(place, name, watched)
    return found


@pytest.mark.usefixtures("far_positions")
async def test_a_pull_that_finds_nothing_after_it_asked_waits_for_a_message(way: Way) -> None:
    nothing, _ = await way.told([PULL_LATER])
    assert nothing.endswith(b'\r\n\r\n{"receivedMessages":[]}'), nothing

    pulling = asyncio.ensure_future(way.told([PULL_LATER]))
    await wait_until_async(lambda: way.made.deliverer.waiting == 1)
    await way.told([said(PUBLISH, MESSAGE)])

    found, is_closed = await pulling
    assert b"200 OK" in found
    assert b'"messageId":"1"' in found
    assert not is_closed
    assert way.on_lane == 3
    assert way.kept() == (0, 0, 0, 0)


@pytest.mark.usefixtures("far_positions")
async def test_a_pull_that_waits_ends_when_its_client_leaves(way: Way) -> None:
    line, protocol = way.connect()
    protocol.data_received(way.with_tokens(PULL_LATER))
    await wait_until_async(lambda: way.made.deliverer.waiting == 1)
    protocol.connection_lost(None)
    await wait_until_async(lambda: not way.state.tasks)

    assert line.written == b""
    assert way.made.deliverer.waiting == 0
    assert way.kept() == (0, 0, 0, 0)


@pytest.mark.usefixtures("far_positions")
async def test_requests_behind_a_pull_that_waits_are_answered_after_it(way: Way) -> None:
    answers, _ = await way.told([PULL_LATER + said(PUBLISH, MESSAGE) + said(PULL, NOW)])

    places = [answers.index(each) for each in (b'"receivedMessages":[]', b'"messageIds":["1"]', b'"messageId":"1"')]
    assert places == sorted(places)


async def test_many_pulls_in_one_packet_give_others_a_turn(way: Way) -> None:
    await way.told([said(PUBLISH, MESSAGE)])
    turns, before = 0, way.on_lane
    answering = asyncio.ensure_future(way.told([said(PULL, NOW) * 60]))
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)
    answers, _ = await answering

    assert answers.count(b'"messageId":"1"') == 60
    assert way.on_lane - before <= MOST_AT_ONCE
    assert turns > 60 - MOST_AT_ONCE


async def test_what_the_service_notes_by_itself_does_not_make_heads_unknown(way: Way) -> None:
    before = way.made.registry.invalidations.generation
    await way.told([said(PUBLISH, MESSAGE)])
    await way.made.counting.round()

    assert way.made.registry.invalidations.generation == before
    on_lane = way.on_lane
    await way.told([said(PUBLISH, MESSAGE)])
    assert way.on_lane == on_lane + 1


async def test_an_error_after_a_wait_is_worded_and_logged_as_that_of_its_request(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[tuple[bytes, Any]] = []
    turned_away = Auditor.turned_away

    async def watched(auditor: Auditor, error: Exception, scope: Any) -> Exception:
        known.append((REQUEST.get(), scope["client"]))
        return await turned_away(auditor, error, scope)

    monkeypatch.setattr(Auditor, "turned_away", watched)
    monkeypatch.setattr(Counts, "note_publish", Mock(side_effect=ArithmeticError("planted")))
    answer, _ = await way.told([said(PUBLISH, MESSAGE, KEY + b"X-Request-Id: mine-9\r\n")])

    assert answer.startswith(b"HTTP/1.1 500")
    assert b"x-request-id: mine-9" in answer
    assert b'"message":"Internal error' in answer or b'"code":500' in answer
    assert known == [(b"mine-9", ("127.0.0.1", 1))]
    assert way.kept() == (0, 0, 0, 0)


async def test_what_is_logged_names_the_request_at_every_step(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    known = requests_at(monkeypatch, Counts, "note_publish")
    requests_at(monkeypatch, MessageReader, "read_small", known)
    before = way.on_lane
    for number in (1, 2):
        await way.told([said(PUBLISH, MESSAGE, KEY + b"X-Request-Id: mine-%d\r\n" % number)])
    assert known == [b"mine-1", b"mine-1", b"mine-2", b"mine-2"]
    await way.told([said(PUBLISH, MESSAGE)])
    assert way.on_lane == before + 3
    assert known[4] == known[5] != b"mine-2"

    await way.told([said(PUBLISH, b"{")])  # begins anew over ASGI
    assert known[6] == known[7] not in known[:6]
    assert REQUEST.get() == b""


@pytest.mark.usefixtures("far_positions")
async def test_a_pull_that_begins_to_wait_keeps_the_id_it_was_given(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    known = requests_at(monkeypatch, Deliverer, "pull")
    before = way.on_lane
    await way.told([PULL_LATER])

    assert way.on_lane == before + 1
    assert len(known) > 1
    assert b"" not in known
    assert len(set(known)) == 1


MANY = 200


class Noting(Line):
    """A line that notes for whom something is written."""

    def __init__(self, name: str, answered: list[str]) -> None:
        super().__init__()
        self._name, self._answered = name, answered

    def write(self, data: Any) -> None:
        super().write(data)
        self._answered.append(self._name)


async def test_a_group_is_answered_in_turns_of_its_projects(tmp_path: Path) -> None:
    disk, rounds, answered = HeldDisk(), at_once(), list[str]()
    async with one_way(tmp_path / "data", lane=True, files=disk, rounds=rounds) as way:
        await way.told([request("POST", "/projects/Q", "{}")])
        await way.told([request("PUT", "/projects/Q/topics/T")])
        packets = {name: request("POST", f"/projects/{name}/topics/T:publish", MESSAGE) for name in "PQ"}
        for each in [*packets.values()] * 2:  # then both heads are known
            await way.told([each])
        known = way.on_lane
        disk.hold()
        protocols = []
        for name in "P" * MANY + "Q":
            _, protocol = way.connect(Noting(name, answered))
            protocol.data_received(packets[name])
            protocols.append(protocol)
        rounds._clock = iter(range(10**6)).__next__  # from now on each look at it finds that a share is over
        disk.release()
        await wait_until_async(lambda: len(answered) == MANY + 1)

        assert way.on_lane == known + MANY + 1
        # Some are answered before the first look at the clock, and those of a group that was under way by then.
        assert answered.index("Q") < MANY / 2
        for each in protocols:
            each.connection_lost(None)
