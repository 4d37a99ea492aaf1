"""Ranges of a topic: JSON lines and Arrow, streamed in turn with others, and answers that fail midway."""

import asyncio
import base64
import itertools
import json
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_loader
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ams.http
from ams.core.clock import Milliseconds
from ams.core.errors import LogUnavailable, NotAcceptable
from ams.core.messages import Stored, data_or_text, message
from ams.core.names import Offset, TopicId
from ams.core.runs import Runs, runs_of
from ams.http import arrow
from ams.http.arrow import SCHEMA, batch
from ams.http.routes import reading
from ams.http.routes.reading import ARROW, COSTLY_COUNT, LINES, arrow_stream, in_turn, wanted_form
from ams.workers.pool import NoWorker, Pool, TaskFailed
from tests.support.pools import CountedPool, FailingPool, ready_pool
from tests.support.served import SERVICE_TOKEN, InProcessService
from tests.support.service import asking
from tests.support.texts import DECODED
from tests.support.waiting import wait_until_async

_number = itertools.count(1)


class Topic:
    def __init__(self, service: InProcessService, http: httpx.AsyncClient) -> None:
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
async def topic(service: InProcessService) -> AsyncIterator[Topic]:
    async with asking(service.run.base_url, SERVICE_TOKEN) as http:
        topic = Topic(service, http)
        await http.post(topic.read.partition("/topics")[0], json={})
        await http.put(topic.read.removesuffix(":read"))
        yield topic


@pytest.mark.parametrize(("accept", "form"), [
    ("", LINES), ("*/*", LINES), ("text/html", LINES), (LINES, LINES), ("application/json", LINES),
    (ARROW, ARROW), (ARROW.upper(), ARROW), (f"{ARROW};q=0.5, */*", ARROW), (f"{LINES},{ARROW}", ARROW),
    (f"{ARROW}; q=0", LINES), (f"{ARROW};q=0.00, */*", LINES), (",,", LINES), (f"{ARROW};q=0.01", ARROW),
])  # fmt: skip
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


async def test_of_many_readers_one_piece_is_made_between_two_turns_of_everybody_else() -> None:
    made = breaths = most = 0

    def encode_piece(_: int) -> bytes:
        nonlocal made
        made += 1
        return b"x"

    async def piece_after_piece() -> AsyncIterator[int]:
        for number in range(20):
            yield number

    async def read_pieces(turn: asyncio.Lock) -> None:
        assert [piece async for piece in in_turn(turn, piece_after_piece(), encode_piece)] == [b"x"] * 20

    turn = asyncio.Lock()
    readers = asyncio.gather(*(read_pieces(turn) for _ in range(50)))
    while not readers.done():
        before = made
        await asyncio.sleep(0)
        most, breaths = max(most, made - before), breaths + 1

    assert (made, most) == (1000, 1)
    assert breaths >= 1000


@pytest.mark.parametrize("first_fails", [False, True])
async def test_a_cut_answer_never_looks_whole(topic: Topic, monkeypatch: pytest.MonkeyPatch, first_fails: bool) -> None:
    await topic.fill(2000)
    real = topic.log.read

    async def read_failing(of: TopicId, start: int, **limits: Any) -> Any:
        if start or first_fails:
            raise LogUnavailable
        return await real(of, start, **limits)

    with monkeypatch.context() as patch:
        patch.setattr(topic.log, "read", read_failing)
        if first_fails:  # then nothing is sent yet
            answer = await topic.http.get(topic.read)
            assert (answer.status_code, answer.json()["error"]["message"]) == (500, "Backend Error")
        else:
            with pytest.raises(httpx.RemoteProtocolError):
                await topic.http.get(topic.read)

    assert len((await topic.http.get(topic.read)).text.splitlines()) == 2000


# Arrow

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
BASE64 = st.binary(max_size=50).map(lambda data: base64.b64encode(data).decode())
SENT_DATA = BASE64 | st.text(st.sampled_from('"\\\\{}:,data=ü\n/A')) | st.sampled_from([data for data, _ in DECODED])
NUMBERS = st.integers(0, 2**62), st.integers(0, 4_102_444_800_000)
STORED_MESSAGES = st.tuples(*NUMBERS, SENT_DATA, st.dictionaries(TEXTS, TEXTS, max_size=3), st.just("") | TEXTS)
PLAIN_MESSAGES = st.tuples(*NUMBERS, SENT_DATA, st.just({}), st.just(""))


def stored_message(offset: int, time: int, data: str, attributes: dict[str, str], key: str = "") -> Stored:
    return Stored(Offset(offset), Milliseconds(time), message(data, attributes, key).fragment)


@given(st.lists(STORED_MESSAGES, min_size=1, max_size=5) | st.lists(PLAIN_MESSAGES, min_size=1, max_size=5))
def test_published_messages_come_out_as_they_went_in(sent: list[tuple[int, int, str, dict[str, str], str]]) -> None:
    made = batch([stored_message(*each) for each in sent])

    made.validate(full=True)
    assert made.schema == SCHEMA
    assert [
        (row["offset"], round(row["publish_time"].timestamp() * 1000), row["data"], dict(row["attributes"]))
        for row in made.to_pylist()
    ] == [(offset, time, data_or_text(data), attributes) for offset, time, data, attributes, _ in sent]
    assert made.column("ordering_key").to_pylist() == [each[4] or None for each in sent]


@pytest.mark.parametrize(("data", "expected"), DECODED)
def test_data_that_is_not_base64_is_its_own_text(data: str, expected: bytes | None) -> None:
    assert data_or_text(data) == (data.encode() if expected is None else expected)


async def stream_pieces(pieces: Sequence[Sequence[Stored]], pool: Pool | None = None) -> list[bytes]:
    async def one_by_one() -> AsyncIterator[Sequence[Stored]]:
        for each in pieces:
            yield each

    return [part async for part in arrow_stream(one_by_one(), asyncio.Lock(), pool, "P")]


class SlowLoader(SourceFileLoader):
    """Loads a module that is already in `sys.modules` before it is complete."""

    begun, may_end = threading.Event(), threading.Event()

    def exec_module(self, module: ModuleType) -> None:
        self.begun.set()
        self.may_end.wait()
        super().exec_module(module)

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name == self.name else None


async def test_streams_that_begin_while_arrow_is_being_loaded_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = await stream_pieces([COSTLY_PIECE])
    loader = SlowLoader(arrow.__name__, str(arrow.__file__))
    monkeypatch.setattr(ams.http, "arrow", arrow)  # an import sets it; it is put back at the end
    monkeypatch.delitem(sys.modules, arrow.__name__)
    monkeypatch.setattr(sys, "meta_path", [loader, *sys.meta_path])
    reading._arrow.cache_clear()

    first = asyncio.create_task(stream_pieces([COSTLY_PIECE]))
    await asyncio.to_thread(loader.begun.wait)
    second = asyncio.create_task(stream_pieces([COSTLY_PIECE]))
    await asyncio.sleep(0)
    loader.may_end.set()

    assert [await first, await second] == [expected, expected]


async def test_each_piece_is_a_batch_of_one_stream_and_nothing_is_a_stream_with_a_schema() -> None:
    one, two = [stored_message(number, 1_700_000_000_123, "eA==", {}) for number in range(2)]
    with pa.ipc.open_stream(b"".join(await stream_pieces([[one], [two]]))) as opened:
        table = opened.read_all()
    assert table.column("offset").to_pylist() == [0, 1]
    assert table.column("offset").num_chunks == 2
    assert table.column("publish_time")[0].as_py() == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)

    with pa.ipc.open_stream(b"".join(await stream_pieces([]))) as opened:
        table = opened.read_all()
    assert (table.schema, table.num_rows) == (SCHEMA, 0)


def test_the_schema_is_the_one_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "reading.md").read_text()
    table = page.partition("### Arrow")[2].partition("\n## ")[0]
    described = re.findall(r"^\| `(\w+)` \| `([^`]+)`(, not null)? \|", table, re.MULTILINE)
    assert described == [(field.name, str(field.type), "" if field.nullable else ", not null") for field in SCHEMA]
    assert [field.name for field in SCHEMA if field.nullable] == ["ordering_key"]


SHORT_TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
MESSAGES = st.tuples(
    st.integers(1, 3), st.integers(0, 2), st.binary(max_size=9) | SHORT_TEXTS,
    st.dictionaries(SHORT_TEXTS, SHORT_TEXTS, max_size=2),
)  # fmt: skip


def make_runs(*messages: tuple[int, int, bytes | str, dict[str, str]]) -> Runs:
    offsets = accumulate(each[0] for each in messages)
    times = accumulate(each[1] for each in messages)
    texts = [each if isinstance(each, str) else each.hex() for _, _, each, _ in messages]
    sent = [message(text, attributes).fragment for text, (*_, attributes) in zip(texts, messages, strict=True)]
    made = zip(offsets, times, sent, strict=True)
    return Runs(runs_of([Stored(Offset(offset), Milliseconds(time), each) for offset, time, each in made]))


COSTLY_PIECE = make_runs(*[(1, 0, bytes(5000), {"n": str(number)}) for number in range(COSTLY_COUNT + 1)])


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.lists(MESSAGES, min_size=1, max_size=6), max_size=3))
def test_a_worker_makes_what_is_made_in_place(
    runner: asyncio.Runner, pool: CountedPool, pieces: list[list[tuple[int, int, bytes | str, dict[str, str]]]]
) -> None:
    runner.run(wait_until_async(pool.is_ready))  # a worker that idles for long ends
    made, before = [make_runs(*each) for each in pieces], pool.tasks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ams.http.routes.reading._is_costly", lambda _: True)
        by_worker = runner.run(stream_pieces(made, pool))

    assert pool.tasks == before + 1 + len(made)
    assert by_worker == runner.run(stream_pieces(made))


@pytest.mark.parametrize("error", [NoWorker(), TaskFailed(), None])
async def test_what_no_worker_makes_is_made_in_place_and_nobody_waits_for_one_to_begin(error: Exception | None) -> None:
    pool = FailingPool(error) if error else CountedPool()
    assert await stream_pieces([COSTLY_PIECE], pool) == await stream_pieces([COSTLY_PIECE])
    assert isinstance(pool, FailingPool) or pool.tasks == 0
    await pool.close()


async def test_a_worker_makes_the_pieces_that_take_long() -> None:
    plain = make_runs(*[(1, 0, bytes(500), {}) for _ in range(2 * COSTLY_COUNT)])
    pool = await ready_pool()

    try:
        assert await stream_pieces([COSTLY_PIECE, plain], pool) == await stream_pieces([COSTLY_PIECE, plain])
        assert pool.tasks == 1
    finally:
        await pool.close()
