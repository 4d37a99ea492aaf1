"""Answers in pieces, over a socket: the forms, back-pressure, and what becomes of one that cannot be finished."""

import asyncio
import itertools
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from ams.core.errors import LogUnavailable, NotAcceptable
from ams.core.names import TopicId
from ams.http.routes import reading
from ams.http.routes.reading import ARROW, LINES, wanted_form
from ams.http.routing import in_turn
from tests.support.served import SERVICE_TOKEN, Served
from tests.support.waiting import PATIENCE_SECONDS

_number = itertools.count(1)


class Topic:
    """A topic of its own in a service, and who may read it."""

    def __init__(self, service: Served, http: httpx.AsyncClient) -> None:
        self.service, self.http = service, http
        self.read = f"/v1/projects/read-{next(_number)}/topics/t:read"

    async def fill(self, count: int, size: int = 1000) -> None:
        body = {"messages": [{"data": "A" * size} for _ in range(100)]}
        for _ in range(count // 100):
            answer = await self.http.post(self.read.replace(":read", ":publish"), json=body)
            assert answer.status_code == 200

    @property
    def log(self) -> Any:
        return self.service.run.service.log


@pytest.fixture
async def topic(service: Served) -> AsyncIterator[Topic]:
    headers = {"x-api-key": SERVICE_TOKEN}
    async with httpx.AsyncClient(
        base_url=service.run.base_url, headers=headers, trust_env=False, timeout=PATIENCE_SECONDS
    ) as http:
        topic = Topic(service, http)
        await http.post(topic.read.partition("/topics")[0], json={})
        await http.put(topic.read.removesuffix(":read"))
        yield topic


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", LINES), ("*/*", LINES), ("text/html", LINES), (LINES, LINES), ("application/json", LINES),
        (ARROW, ARROW), (ARROW.upper(), ARROW), (f"{ARROW};q=0.5, */*", ARROW), (f"{LINES},{ARROW}", ARROW),
        (f"{ARROW}; q=0", LINES), (f"{ARROW};q=0.00, */*", LINES), (",,", LINES), (f"{ARROW};q=0.01", ARROW),
    ],
)  # fmt: skip
def test_arrow_comes_when_it_is_named_and_json_lines_otherwise(accept: str, form: str) -> None:
    assert wanted_form(accept) == form


@pytest.mark.parametrize("others", ["*/*", "application/*", LINES, "application/json;q=0.1"])
def test_without_pyarrow_json_lines_will_do_when_they_are_accepted(others: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading.importlib.util, "find_spec", lambda _: None)

    assert wanted_form(f"{ARROW}, {others}") == LINES
    with pytest.raises(NotAcceptable, match="needs pyarrow"):
        wanted_form(f"{ARROW}, text/html")


def test_the_service_does_not_load_pyarrow_before_it_is_asked_for() -> None:
    program = "import ams.app.wiring, sys; print('pyarrow' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


async def test_both_forms_hold_the_same_messages(topic: Topic) -> None:
    await topic.fill(5000, 300)

    lines = await topic.http.get(topic.read)
    arrow = await topic.http.get(topic.read, headers={"accept": ARROW})

    assert (lines.headers["content-type"], arrow.headers["content-type"]) == (LINES, ARROW)
    assert lines.headers["ams-next-offset"] == arrow.headers["ams-next-offset"] == "5000"
    read = [json.loads(line) for line in lines.text.splitlines()]
    with pa.ipc.open_stream(arrow.content) as opened:
        table = opened.read_all()
    assert [each["offset"] for each in read] == table.column("offset").to_pylist() == list(range(5000))
    assert table.column("data")[0].as_py() == bytes(225)


async def test_a_client_that_reads_slowly_holds_a_piece_or_two_of_memory(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces are made as they are taken: of a long answer nobody reads, only the first few are read of the log."""
    await topic.fill(20_000)
    made, real = 0, topic.log.read

    async def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal made
        found = await real(*arguments, **more)
        made += len(found)
        return found

    monkeypatch.setattr(topic.log, "read", counted)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, topic.service.address)
        request = f"GET {topic.read}?max=20000 HTTP/1.1\r\nhost: x\r\nx-api-key: {SERVICE_TOKEN}\r\n\r\n"
        await loop.sock_sendall(slow, request.encode())
        await loop.sock_recv(slow, 1000)
        await asyncio.sleep(0.3)
        before_leaving = made
    await asyncio.sleep(0.3)

    assert 0 < before_leaving < 10_000
    assert made <= before_leaving + 2000


async def test_of_many_readers_one_piece_is_made_between_two_turns_of_everybody_else() -> None:
    made = breaths = most = 0

    def encoded(_: int) -> bytes:
        nonlocal made
        made += 1
        return b"x"

    async def piece_after_piece() -> AsyncIterator[int]:
        for number in range(20):
            yield number

    async def read(turn: asyncio.Lock) -> None:
        assert [piece async for piece in in_turn(turn, piece_after_piece(), encoded)] == [b"x"] * 20

    turn = asyncio.Lock()
    readers = asyncio.gather(*(read(turn) for _ in range(50)))
    while not readers.done():
        before = made
        await asyncio.sleep(0)
        most, breaths = max(most, made - before), breaths + 1

    assert (made, most) == (1000, 1)
    assert breaths >= 1000


@pytest.mark.parametrize("first_fails", [False, True])
async def test_an_answer_that_cannot_be_finished_is_not_taken_for_whole(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, first_fails: bool
) -> None:
    await topic.fill(2000)
    real = topic.log.read

    async def failing(of: TopicId, start: int, **limits: Any) -> Any:
        if start or first_fails:
            raise LogUnavailable
        return await real(of, start, **limits)

    with monkeypatch.context() as patch:
        patch.setattr(topic.log, "read", failing)
        if first_fails:  # then nothing is sent yet
            answer = await topic.http.get(topic.read)
            assert (answer.status_code, answer.json()["error"]["message"]) == (500, "Backend Error")
        else:
            with pytest.raises(httpx.RemoteProtocolError):
                await topic.http.get(topic.read)

    assert len((await topic.http.get(topic.read)).text.splitlines()) == 2000
