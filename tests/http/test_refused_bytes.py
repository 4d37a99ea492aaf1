"""A project whose large bodies are refused sends its next ones at a limited rate, and delays nobody else."""

import asyncio
import contextlib
import gzip
from collections.abc import MutableMapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ams.core.errors import AmsError, InvalidInput, Overloaded, QuotaExceeded, RegistryUnavailable, TooLarge
from ams.core.fair_share import MAX_UNCOUNTED_BYTES
from ams.http.limits import (
    FREE_REFUSED_BYTES,
    MAX_DELAY_SECONDS,
    REFUSED_BYTES_PER_SECOND,
    REPORT_SECONDS,
    UNPACED_BYTES,
    Bodies,
    Headers,
    Holders,
)
from tests.support.hot_packets import MESSAGE, PUBLISH, post_packet
from tests.support.loop_time import pass_loop_time
from tests.support.two_ways import one_way, request
from tests.support.waiting import some_turns, wait_until_async

MIB = 2**20
P, Q = ("P", "u"), ("Q", "u")


class Sender:
    def __init__(self, size: int, *, is_chunked: bool = False, coding: bytes = b"") -> None:
        self.is_received = False
        self.body = b"x" * size
        length = (b"transfer-encoding", b"chunked") if is_chunked else (b"content-length", b"%d" % size)
        self.headers: Headers = [length, (b"content-encoding", coding)] if coding else [length]

    async def __call__(self) -> MutableMapping[str, Any]:
        self.is_received = True
        return {"type": "http.request", "body": self.body}


@pytest.fixture
def bodies() -> Bodies:
    return Bodies(max_body=16 * MIB, max_buffered=64 * MIB, seconds=60)


def refuse(bodies: Bodies, size: int, holders: Holders = P, error: AmsError | None = None) -> None:
    """Read a body and refuse it, or raise another error."""
    with contextlib.suppress(AmsError), bodies.hold_body(size, holders):
        raise error or QuotaExceeded("too much")


def begin(bodies: Bodies, sender: Sender, holders: Holders = P) -> "asyncio.Task[bytes]":
    return asyncio.create_task(bodies.read(sender.headers, sender, None, holders))


async def is_read(bodies: Bodies, size: int, holders: Holders = P) -> bool:
    sender = Sender(size)
    reading = begin(bodies, sender, holders)
    await some_turns()
    reading.cancel()
    return sender.is_received


async def test_a_large_body_waits_after_many_refused_bytes(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(16):
        refuse(bodies, MIB)
    assert await is_read(bodies, MIB)
    refuse(bodies, 20 * REFUSED_BYTES_PER_SECOND)
    assert not await is_read(bodies, MIB)

    waiting = begin(bodies, sender := Sender(MIB))
    await asyncio.sleep(0)
    pass_loop_time(monkeypatch, 15.0)
    await some_turns()
    assert not sender.is_received
    pass_loop_time(monkeypatch, 10.0)
    assert await waiting == sender.body
    assert await is_read(bodies, MIB)


async def test_the_log_names_who_waits_once_a_minute(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    with capture_logs() as logs:
        for pause in (0.0, REPORT_SECONDS - 1, 2.0):
            pass_loop_time(monkeypatch, pause)
            refuse(bodies, FREE_REFUSED_BYTES)
            refuse(bodies, FREE_REFUSED_BYTES)
            for _ in range(3):
                assert not await is_read(bodies, MIB)

    assert [(each["event"], each["of"]) for each in logs] == [("bodies.waiting", "P")] * 2


async def test_nobody_else_waits_and_no_small_body_does(bodies: Bodies) -> None:
    refuse(bodies, 2 * FREE_REFUSED_BYTES)

    assert not await is_read(bodies, UNPACED_BYTES + 1)
    assert not await is_read(bodies, UNPACED_BYTES + 1, ("P", "another"))
    assert await is_read(bodies, UNPACED_BYTES)
    assert await is_read(bodies, MIB, Q)
    assert await is_read(bodies, MIB, ("", "u"))


async def test_without_a_project_a_user_pays_and_nobody_for_those_who_are_unknown(bodies: Bodies) -> None:
    for user in ("u", None):
        refuse(bodies, 2 * FREE_REFUSED_BYTES, ("", user))

    assert not await is_read(bodies, MIB, ("", "u"))
    assert await is_read(bodies, MIB, ("", "v"))
    assert await is_read(bodies, MIB, ("", None))


@pytest.mark.parametrize("error", [Overloaded("Too many"), RegistryUnavailable(), ValueError("a defect")])
async def test_what_the_service_fails_at_counts_for_nobody(bodies: Bodies, error: Any) -> None:
    with contextlib.suppress(type(error)):
        refuse(bodies, 2 * FREE_REFUSED_BYTES, error=error)
    with bodies.hold_body(2 * FREE_REFUSED_BYTES, P):
        pass

    assert await is_read(bodies, MIB)


async def test_waiting_bodies_are_read_in_turn_at_the_rate(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    now, step = 0.0, MIB / REFUSED_BYTES_PER_SECOND / 10
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    refuse(bodies, FREE_REFUSED_BYTES + MIB)
    senders = [Sender(MIB) for _ in range(5)]
    reading = [begin(bodies, each) for each in senders]
    received = []
    for _ in range(60):
        for _ in range(5):
            await asyncio.sleep(0)
        received.append(sum(each.is_received for each in senders))
        now += step

    await asyncio.gather(*reading)
    begun = [received.index(count) for count in range(1, len(senders) + 1)]
    assert all(9 <= after - before <= 11 for before, after in pairwise([0, *begun]))


@pytest.mark.parametrize("sender", [Sender(UNPACED_BYTES, is_chunked=True), Sender(1, coding=b"gzip")])
async def test_a_body_of_which_nobody_knows_how_large_it_is_waits_as_a_large_one(bodies: Bodies, sender: Sender):
    refuse(bodies, 2 * FREE_REFUSED_BYTES)
    waiting = begin(bodies, sender)
    await some_turns()

    assert not sender.is_received
    waiting.cancel()


async def test_a_body_that_becomes_too_large_counts_as_a_refused_one(bodies: Bodies) -> None:
    for _ in range(2):
        zipped = Sender(0, coding=b"gzip")
        zipped.body = gzip.compress(b" " * 17 * MIB)
        with pytest.raises(TooLarge):
            await bodies.read(zipped.headers, zipped, None, P)

    assert not await is_read(bodies, MIB)


async def test_a_body_that_waits_too_long_is_refused_later(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        refuse(bodies, int(MAX_DELAY_SECONDS * REFUSED_BYTES_PER_SECOND) // 10)
    waiting = begin(bodies, sender := Sender(MIB))
    await some_turns()
    assert not waiting.done()
    pass_loop_time(monkeypatch, MAX_DELAY_SECONDS)

    with pytest.raises(Overloaded, match="^Too many large requests at once$"):
        await waiting
    assert not sender.is_received


async def test_a_request_that_came_as_a_whole_waits_likewise(bodies: Bodies, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(InvalidInput), bodies.count_request(FREE_REFUSED_BYTES + 40 * MIB, P):
        raise InvalidInput("no")
    assert not await bodies.wait_turn(UNPACED_BYTES, P)
    assert not await bodies.wait_turn(MIB, Q)

    waiting = asyncio.create_task(bodies.wait_turn(MIB, P))
    await some_turns()
    assert not waiting.done()
    pass_loop_time(monkeypatch, 10.0)  # so long that its sender's rights may have changed
    assert await waiting


async def test_large_bodies_are_worked_on_one_at_a_time_and_projects_take_turns(bodies: Bodies) -> None:
    done: list[Holders] = []

    async def work(holders: Holders) -> None:
        sender = Sender(MAX_UNCOUNTED_BYTES + 1)
        await bodies.read(sender.headers, sender, None, holders)
        done.append(holders)

    await asyncio.gather(*(work(holders) for holders in [P] * 50 + [Q]))

    assert done.index(Q) <= 2
    assert len(done) == 51


async def test_a_schema_beyond_a_quota_is_not_received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = '{"type": "json", "schema": {"description": "%s"}}' % ("x" * 900_000)
    async with one_way(tmp_path / "data", lane=True) as way:
        await way.send_packets([request("POST", "/projects/Q", "{}")])
        await way.send_packets([request("POST", "/projects/Q:modifyQuotas", '{"quotas": {"schemaBytes": 1000}}')])
        beyond = request("POST", "/projects/Q/schemas/X", schema)
        while not way.made.bodies.must_wait(("Q", None)):
            answer, _ = await way.send_packets([beyond])
            assert b"Quota schemaBytes of the project is exceeded" in answer
        for _ in range(6):  # so much that the test is not too slow for it
            refuse(way.made.bodies, 16 * MIB, ("Q", None))
        line, connection = await way.begin(beyond)
        assert line.is_paused

        other, another = await way.begin(post_packet(PUBLISH, MESSAGE))
        await wait_until_async(lambda: other.written.startswith(b"HTTP/1.1 200"))
        assert (line.is_paused, line.written) == (True, b"")

        pass_loop_time(monkeypatch, 30.0)
        await wait_until_async(lambda: b"Quota schemaBytes" in line.written)
        for each in (connection, another):
            each.connection_lost(None)


async def test_a_large_publish_waits_although_its_head_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    large = post_packet(PUBLISH, MESSAGE + b" " * UNPACED_BYTES)
    async with one_way(tmp_path / "data", lane=True) as way:
        for _ in range(2):
            await way.send_packets([large])
        assert way.on_lane == 1
        for _ in range(7):
            refuse(way.made.bodies, 16 * MIB, P)
        line, connection = await way.begin(large)
        other, another = await way.begin(post_packet(PUBLISH, MESSAGE))
        await wait_until_async(lambda: other.written.startswith(b"HTTP/1.1 200"))
        assert line.written == b""

        pass_loop_time(monkeypatch, 30.0)
        await wait_until_async(lambda: line.written.startswith(b"HTTP/1.1 200"))
        for each in (connection, another):
            each.connection_lost(None)
