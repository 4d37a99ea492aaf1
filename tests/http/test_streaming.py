"""Answers in pieces, over a socket: the forms, back-pressure, and what becomes of one that cannot be finished."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from ams.core.errors import LogUnavailable, NotAcceptable
from ams.core.names import TopicId
from ams.http.routes import reading
from ams.http.routes.reading import ARROW, LINES, wanted_form
from ams.http.routing import in_turn
from tests.support.service import running_service

READ = "/v1/projects/P/topics/t:read"


class Client:
    """A caller of a service in this process, with a topic `t` of project `P`."""

    def __init__(self, run, token: str) -> None:
        self.run = run
        self.http = httpx.AsyncClient(base_url=run.base_url, headers={"x-api-key": token}, trust_env=False, timeout=20)
        self.token = token

    async def fill(self, count: int, size: int = 1000) -> None:
        for _ in range(count // 100):
            body = {"messages": [{"data": "A" * size} for _ in range(100)]}
            assert (await self.http.post("/v1/projects/P/topics/t:publish", json=body)).status_code == 200


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with running_service(tmp_path / "ams-data") as (run, token):
        client = Client(run, token)
        async with client.http:
            await client.http.post("/v1/projects/P", json={})
            await client.http.put("/v1/projects/P/topics/t")
            yield client


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
def test_without_pyarrow_json_lines_will_do_when_they_are_accepted(
    others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading.importlib.util, "find_spec", lambda _: None)

    assert wanted_form(f"{ARROW}, {others}") == LINES
    with pytest.raises(NotAcceptable, match="needs pyarrow"):
        wanted_form(f"{ARROW}, text/html")


def test_the_service_does_not_load_pyarrow_before_it_is_asked_for() -> None:
    program = "import ams.app.wiring, sys; print('pyarrow' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


async def test_both_forms_hold_the_same_messages(client: Client) -> None:
    await client.fill(5000, 300)

    lines = await client.http.get(READ)
    arrow = await client.http.get(READ, headers={"accept": ARROW})

    assert (lines.headers["content-type"], arrow.headers["content-type"]) == (LINES, ARROW)
    assert lines.headers["ams-next-offset"] == arrow.headers["ams-next-offset"] == "5000"
    read = [json.loads(line) for line in lines.text.splitlines()]
    with pa.ipc.open_stream(arrow.content) as opened:
        table = opened.read_all()
    assert [each["offset"] for each in read] == table.column("offset").to_pylist() == list(range(5000))
    assert table.column("data")[0].as_py() == bytes(225)


async def test_a_client_that_reads_slowly_holds_a_piece_or_two_of_memory(client: Client) -> None:
    """Pieces are made as they are taken: of a long answer nobody reads, only the first few are read of the log."""
    await client.fill(20_000)
    made = 0
    real = client.run.service.log.read

    async def counted(*arguments, **more):
        nonlocal made
        found = await real(*arguments, **more)
        made += len(found)
        return found

    client.run.service.log.read = counted
    host, port = client.run.base_url.removeprefix("http://").split(":")
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, (host, int(port)))
        request = f"GET {READ}?max=20000 HTTP/1.1\r\nhost: x\r\nx-api-key: {client.token}\r\n\r\n"
        await loop.sock_sendall(slow, request.encode())
        await loop.sock_recv(slow, 1000)
        await asyncio.sleep(0.3)
        before_leaving = made
    await asyncio.sleep(0.3)

    assert 0 < before_leaving < 10_000
    assert made <= before_leaving + 2000


async def test_of_many_readers_one_piece_is_made_between_two_turns_of_everybody_else() -> None:
    made = breaths = 0
    most = 0

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


async def test_an_answer_that_cannot_be_finished_is_not_taken_for_whole(client: Client) -> None:
    await client.fill(2000)
    real = client.run.service.log.read

    async def failing(topic: TopicId, start: int, **limits):
        if start:
            raise LogUnavailable
        return await real(topic, start, **limits)

    client.run.service.log.read = failing

    with pytest.raises(httpx.RemoteProtocolError):
        await client.http.get(READ)
    client.run.service.log.read = real
    assert len((await client.http.get(READ)).text.splitlines()) == 2000


async def test_what_fails_at_once_is_answered_as_an_error(client: Client) -> None:
    await client.fill(100)

    async def failing(*arguments, **more):
        raise LogUnavailable

    client.run.service.log.read = failing

    answer = await client.http.get(READ)

    assert (answer.status_code, answer.json()["error"]["message"]) == (500, "Backend Error")
