"""Fair scheduler: nobody waits for more than a share of a neighbour's requests, and nothing is lost or done twice."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.web.connection import PORTION_BYTES, HttpConnection
from ams.web.fair_scheduler import (
    BUSY_TURN_SECONDS,
    FREE_REQUESTS,
    MAX_HELD_BYTES,
    QUIET_TURN_SECONDS,
    REQUESTS_PER_LOOK,
    SHARE_SECONDS,
    FairScheduler,
)
from tests.support.line import LineServer
from tests.support.schedulers import AllWaits

COST = SHARE_SECONDS / 10  # of a request, in seconds of the virtual clock


class ManualTurns:
    """A scheduler in a loop with manual iterations, and a clock that only work moves."""

    def __init__(self, busy: str = "") -> None:
        """Start with so many queued requests of a project that the next ones wait."""
        self.now = 0.0
        self.scheduler = FairScheduler(lambda: self.now)
        self.done: list[Any] = []
        self.failed = 0
        self._due: list[Callable[[], object]] = []
        while busy and self.come(busy):
            pass

    def call_soon(self, call: Callable[..., object], *arguments: Any) -> None:
        self._due.append(partial(call, *arguments))

    def come(
        self, project: str, name: Any = None, cost: float = COST, work: Callable[[], object] | None = None
    ) -> bool:
        """Submit a request; return whether it was done at once."""

        def do() -> None:
            self.spend(project, cost, name)
            if work is not None:
                work()

        if self.scheduler.free > 0:
            self.scheduler.free -= 1
        elif self.scheduler.must_wait(self):  # type: ignore[arg-type]  # what is used of a loop
            self.scheduler.enqueue(project, do)
            return False
        do()
        return True

    def spend(self, project: str, cost: float, name: Any = None) -> None:
        self.now += cost
        self.done.append((project, name))

    def turn(self) -> bool:
        due, self._due = self._due, []
        for each in due:
            try:
                each()
            except ZeroDivisionError:  # an event loop notes it, and goes on
                self.failed += 1
        return bool(due)

    def finish(self) -> None:
        while self.turn():
            pass


def test_few_requests_are_done_as_they_come_and_call_for_nothing() -> None:
    turns = ManualTurns()
    assert all(turns.come("A") for _ in range(FREE_REQUESTS))
    assert turns.turn() is False


def test_what_comes_when_a_turn_has_taken_long_waits_for_the_next_ones() -> None:
    turns = ManualTurns("A")
    at_once = len(turns.done)
    assert QUIET_TURN_SECONDS / COST <= at_once <= QUIET_TURN_SECONDS / COST + FREE_REQUESTS + 2 * REQUESTS_PER_LOOK

    assert not any(turns.come("A") for _ in range(100))
    turns.turn()
    assert (
        BUSY_TURN_SECONDS / COST
        <= len(turns.done) - at_once
        <= BUSY_TURN_SECONDS / COST + BUSY_TURN_SECONDS / SHARE_SECONDS
    )
    turns.finish()
    assert len(turns.done) == at_once + 101
    assert turns.come("A")


def test_another_project_waits_for_a_share_of_a_neighbours_requests_at_most() -> None:
    turns = ManualTurns("A")
    for _ in range(1000):
        turns.come("A")
    before = len(turns.done)
    turns.come("B", "late")
    turns.turn()

    assert ("B", "late") in turns.done[before : before + round(SHARE_SECONDS / COST) + 2]


def test_what_waits_under_many_names_takes_the_turns_of_one() -> None:
    turns = ManualTurns("A")
    for number in range(1000):
        turns.scheduler.enqueue("stranger", partial(turns.spend, "stranger", COST), number)
    for number in range(100):
        turns.come("A", number)
    before = len(turns.done)
    while ("A", 99) not in turns.done:
        turns.turn()

    assert sum(project == "stranger" for project, _ in turns.done[before:]) < 150


def test_one_of_each_name_is_done_in_a_row() -> None:
    turns = ManualTurns("A")
    for name in "XXXY":
        turns.scheduler.enqueue("stranger", partial(turns.spend, name, COST), name)
    turns.finish()

    assert [project for project, _ in turns.done[-4:]] == ["X", "Y", "X", "X"]


def test_a_project_of_dear_requests_gets_no_more_than_one_of_cheap_ones() -> None:
    turns = ManualTurns("dear")
    for _ in range(10):
        turns.come("dear", cost=3 * BUSY_TURN_SECONDS)
        for _ in range(10):
            turns.come("cheap")
    begun = len(turns.done)
    turns.finish()
    dear = [number for number, (project, _) in enumerate(turns.done[begun:]) if project == "dear"]
    assert all(second - first >= 10 for first, second in pairwise(dear[1:]))


@given(st.lists(
    st.tuples(st.sampled_from("ABCD"), st.floats(0, 2 * BUSY_TURN_SECONDS), st.booleans(), st.booleans()),
    max_size=200,
))  # fmt: skip
def test_everything_is_done_once_and_in_the_order_of_its_project(coming: list[tuple[str, float, bool, bool]]) -> None:
    turns = ManualTurns()
    failing = 0
    for number, (project, cost, fails, ends_turn) in enumerate(coming):

        def fail(fails: bool = fails) -> None:
            assert 1 // (not fails)

        try:
            turns.come(project, number, cost, fail)
        except ZeroDivisionError:
            failing += 1
        if ends_turn:
            turns.turn()
    turns.finish()

    assert turns.failed + failing == sum(fails for _, _, fails, _ in coming)
    for project in "ABCD":
        names = [name for each, name in turns.done if each == project]
        assert names == [number for number, each in enumerate(coming) if each[0] == project]


# Connections

asked: list[str] = []  # the paths of requests that reached the application


async def application(scope: Any, receive: Any, send: Any) -> None:
    asked.append(scope["path"])
    await receive()
    status = 401 if b"stranger" in dict(scope["headers"]) else 200
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class CountingConnection(HttpConnection):
    parts = 0
    """Bytes read of bodies."""

    def take_body(self, body: bytes) -> None:
        self.parts += 1
        super().take_body(body)


async def test_large_packets_use_an_iteration_up_before_small_ones_would() -> None:
    now = 0.0
    server = LineServer(application, FairScheduler(lambda: now), connection=CountingConnection)
    connections = [server.connect()[1] for _ in range(FREE_REQUESTS)]
    for size in (1, PORTION_BYTES):
        for each in connections:
            each.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
        while server.port.scheduler.free < FREE_REQUESTS:
            await asyncio.sleep(0)
        before = sum(each.parts for each in connections)
        for each in connections:
            each.data_received(b"x" * size)
            now += QUIET_TURN_SECONDS
        read = sum(each.parts for each in connections) - before
        assert (read == FREE_REQUESTS) is (size == 1)
        while server.port.exchanges:
            await asyncio.sleep(0)


class Lines(LineServer):
    """Connections of one server in which all packets wait for their turn."""

    def __init__(self) -> None:
        asked.clear()
        self.scheduler = AllWaits()
        super().__init__(application, self.scheduler)

    def expire_shares(self) -> None:
        """Let each look at the clock find that a share is over."""
        self.scheduler._clock = iter(range(10**6)).__next__


@pytest.fixture
async def lines() -> Lines:
    return Lines()


def get(project: str, name: str = "T", *, method: str = "GET", fields: str = "") -> bytes:
    return f"{method} /v1/projects/{project}/topics/{name} HTTP/1.1\r\nHost: x\r\n{fields}\r\n".encode()


async def wait_for_exchanges(lines: Lines) -> None:
    for _ in range(50):
        await asyncio.sleep(0)
    assert not lines.port.exchanges


async def test_the_first_request_of_a_connection_waits_for_its_own_project_only(lines: Lines) -> None:
    lines.expire_shares()
    many = [lines.connect()[1] for _ in range(1000)]
    for each in many:
        each.data_received(get("A"))
    line, connection = lines.connect()
    connection.data_received(get("B"))
    while not line.written:
        await asyncio.sleep(0)

    assert asked.index("/v1/projects/B/topics/T") <= 2
    for each in many:
        each.connection_lost(None)


@pytest.mark.parametrize("first", [get("B", fields="Stranger: 1\r\n"), get("B", method="OPTIONS"), get("A")])
async def test_strangers_take_no_turn_of_the_project_they_name(lines: Lines, first: bytes) -> None:
    line, connection = lines.connect()
    connection.data_received(get("B"))
    strangers = [lines.connect()[1] for _ in range(300)]
    for each in strangers:
        each.data_received(first)
    await wait_for_exchanges(lines)
    asked.clear()
    line.written = b""
    lines.expire_shares()
    for each in strangers:
        each.data_received(get("B", "forged"))
    connection.data_received(get("B", "own"))
    while not line.written:
        await asyncio.sleep(0)

    assert asked.index("/v1/projects/B/topics/own") <= 2
    for each in strangers:
        each.connection_lost(None)


@pytest.mark.parametrize("ending", ["prepare_stop", "eof_received"])
async def test_what_came_before_a_stop_or_the_end_of_a_client_is_answered(lines: Lines, ending: str) -> None:
    line, connection = lines.connect()
    connection.data_received(get("A"))
    getattr(connection, ending)()
    assert not line.is_closed
    await wait_for_exchanges(lines)

    assert asked == ["/v1/projects/A/topics/T"]
    assert line.written.startswith(b"HTTP/1.1 200")
    assert line.is_closed


async def test_a_client_that_leaves_while_it_waits_is_forgotten(lines: Lines) -> None:
    _, connection = lines.connect()
    connection.data_received(get("A"))
    assert lines.scheduler._held_bytes == len(get("A"))
    connection.connection_lost(None)
    assert lines.scheduler._held_bytes == 0
    await wait_for_exchanges(lines)

    assert asked == []


async def test_no_more_is_read_of_a_client_that_waits_than_a_portion(lines: Lines) -> None:
    line, connection = lines.connect()
    said = get("A")[:-2] + b"Content-Length: %d\r\n\r\n" % (2 * PORTION_BYTES)
    connection.data_received(said)
    connection.data_received(b" " * PORTION_BYTES)
    assert line.is_paused
    for _ in range(5):
        await asyncio.sleep(0)
    assert lines.scheduler._held_bytes == 0
    connection.data_received(b" " * PORTION_BYTES)
    await wait_for_exchanges(lines)

    assert not line.is_paused
    assert line.written.startswith(b"HTTP/1.1 200")


async def test_what_there_is_no_memory_to_hold_is_read_at_once_and_in_order(lines: Lines) -> None:
    line, connection = lines.connect()
    connection.data_received(get("A", "first"))
    others = MAX_HELD_BYTES - len(get("A", "first"))
    assert lines.scheduler.hold_bytes(others)
    assert not lines.scheduler.hold_bytes(1)
    connection.data_received(get("A", "second"))
    lines.scheduler.release_bytes(others)
    await wait_for_exchanges(lines)

    assert asked == ["/v1/projects/A/topics/first", "/v1/projects/A/topics/second"]
    assert line.written.count(b"HTTP/1.1 200") == 2


async def test_a_client_that_waits_for_its_turn_is_not_out_of_time(lines: Lines) -> None:
    line, connection = lines.connect()
    connection.data_received(get("A"))
    connection._end_arrival()
    connection._close_idle()
    assert not line.is_closed
    await wait_for_exchanges(lines)

    assert line.written.startswith(b"HTTP/1.1 200")
