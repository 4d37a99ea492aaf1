"""Messages as Arrow: the schema of the docs, what JSON lines say of each message, and the same bytes from workers."""

import asyncio
import base64
import importlib
import importlib.machinery
import importlib.util
import re
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ams.http
from ams.core.clock import Milliseconds
from ams.core.messages import Stored, message
from ams.core.names import Offset
from ams.core.runs import Runs, runs_of
from ams.http.arrow import SCHEMA, batch, payload
from ams.http.arrow_stream import COSTLY, stream
from ams.workers import NoWorker, Pool, TaskFailed
from tests.support.pools import CountedPool, FailingPool, ready_pool
from tests.support.texts import DECODED
from tests.support.waiting import wait_until_async

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
STORED = st.builds(
    lambda *fields: fields,
    st.integers(0, 2**62),
    st.integers(0, 4_102_444_800_000),
    st.binary(max_size=50),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
    st.just("") | TEXTS,
)


def stored(offset: int, time: int, data: bytes, attributes: dict[str, str], key: str = "") -> Stored:
    made = message(base64.b64encode(data).decode(), attributes, key)
    return Stored(Offset(offset), Milliseconds(time), made.fragment)


@given(st.lists(STORED, min_size=1, max_size=5))
def test_what_was_published_comes_out(given_: list[tuple[int, int, bytes, dict[str, str], str]]) -> None:
    made = batch([stored(*each) for each in given_])

    made.validate(full=True)
    assert made.schema == SCHEMA
    assert [
        (row["offset"], round(row["publish_time"].timestamp() * 1000), row["data"], dict(row["attributes"]))
        for row in made.to_pylist()
    ] == [each[:4] for each in given_]
    assert made.column("ordering_key").to_pylist() == [each[4] or None for each in given_]


@given(st.lists(st.binary(max_size=50), max_size=5), st.sampled_from([None, "", "not base64", "YQ==\nYg==", '"', "ü"]))
def test_data_without_attributes_comes_out_whatever_is_among_it(data: list[bytes], other: str | None) -> None:
    texts = [base64.b64encode(each).decode() for each in data] + ([] if other is None else [other])
    made = batch([Stored(Offset(3), Milliseconds(9), message(text).fragment) for text in texts])

    made.validate(full=True)
    assert made.column("data").to_pylist() == [payload(text) for text in texts]
    assert made.column("attributes").to_pylist() == [[]] * len(texts)


async def pieces(*of: Sequence[Stored]) -> AsyncIterator[Sequence[Stored]]:
    for each in of:
        yield each


async def read(*of: Sequence[Stored]) -> Any:
    written = b"".join([part async for part in stream(pieces(*of), asyncio.Lock())])
    with pa.ipc.open_stream(written) as opened:
        return opened.read_all()


async def test_each_piece_is_a_batch_of_one_stream() -> None:
    one, two = [stored(number, 1_700_000_000_123, b"x", {}) for number in range(2)]

    table = await read([one], [two])

    assert table.column("offset").to_pylist() == [0, 1]
    assert table.column("offset").num_chunks == 2
    assert table.column("publish_time")[0].as_py() == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)


async def test_nothing_is_a_stream_with_a_schema() -> None:
    table = await read()

    assert (table.schema, table.num_rows) == (SCHEMA, 0)


@given(st.text(st.sampled_from('"\\\\{}:,data=ü\n/A')), st.dictionaries(TEXTS, TEXTS, max_size=2))
def test_whatever_a_lenient_service_stored_comes_out(data: str, attributes: dict[str, str]) -> None:
    made = batch([Stored(Offset(0), Milliseconds(0), message(data, attributes).fragment)])

    assert made.to_pylist()[0]["data"] == payload(data)
    assert dict(made.to_pylist()[0]["attributes"]) == attributes


@pytest.mark.parametrize(("data", "expected"), DECODED)
def test_data_that_is_not_base64_is_its_own_text(data: str, expected: bytes | None) -> None:
    made = batch([Stored(Offset(0), Milliseconds(0), message(data).fragment)])

    assert made.to_pylist()[0]["data"] == payload(data) == (data.encode() if expected is None else expected)


def test_the_schema_is_the_one_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "reading.md").read_text()

    described = re.findall(r"^\| `(\w+)` \| `([^`]+)`(, not null)? \|", page, re.MULTILINE)

    assert described == [(field.name, str(field.type), "" if field.nullable else ", not null") for field in SCHEMA]
    assert [field.name for field in SCHEMA if field.nullable] == ["ordering_key"]


SHORT_TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
MESSAGES = st.tuples(
    st.integers(1, 3),
    st.integers(0, 2),
    st.binary(max_size=9) | SHORT_TEXTS,
    st.dictionaries(SHORT_TEXTS, SHORT_TEXTS, max_size=2),
)


def runs(*messages: tuple[int, int, bytes | str, dict[str, str]]) -> Runs:
    """Return messages, each so many offsets and milliseconds after the one before."""
    offsets = accumulate(each[0] for each in messages)
    times = accumulate(each[1] for each in messages)
    texts = [each if isinstance(each, str) else each.hex() for _, _, each, _ in messages]
    sent = [message(text, attributes).fragment for text, (*_, attributes) in zip(texts, messages, strict=True)]
    made = zip(offsets, times, sent, strict=True)
    return Runs(runs_of([Stored(Offset(offset), Milliseconds(time), each) for offset, time, each in made]))


COSTLY_PIECE = runs(*[(1, 0, bytes(5000), {"n": str(number)}) for number in range(COSTLY + 1)])


async def streamed(pieces: Sequence[Runs], pool: Pool | None = None) -> list[bytes]:
    async def one_by_one() -> AsyncIterator[Runs]:
        for each in pieces:
            yield each

    return [part async for part in stream(one_by_one(), asyncio.Lock(), pool, "P")]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.lists(MESSAGES, min_size=1, max_size=6), max_size=3))
def test_a_worker_makes_what_is_made_in_place(
    runner: asyncio.Runner, pool: CountedPool, pieces: list[list[tuple[int, int, bytes | str, dict[str, str]]]]
) -> None:
    runner.run(wait_until_async(pool.is_ready))  # a worker that idles for long ends
    made, before = [runs(*each) for each in pieces], pool.tasks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ams.http.arrow_stream._is_costly", lambda _: True)
        by_worker = runner.run(streamed(made, pool))

    assert pool.tasks == before + 1 + len(made)
    assert by_worker == runner.run(streamed(made))


@pytest.mark.parametrize("error", [NoWorker(), TaskFailed()])
async def test_what_no_worker_makes_is_made_in_place(error: Exception) -> None:
    made = [COSTLY_PIECE]

    assert await streamed(made, FailingPool(error)) == await streamed(made)


async def test_a_worker_makes_the_pieces_that_take_long() -> None:
    plain = runs(*[(1, 0, bytes(500), {}) for _ in range(2 * COSTLY)])
    pool = await ready_pool()

    try:
        assert await streamed([COSTLY_PIECE, plain], pool) == await streamed([COSTLY_PIECE, plain])
        assert pool.tasks == 1
    finally:
        await pool.close()


async def test_nobody_waits_for_a_worker_to_begin() -> None:
    pool = CountedPool()

    assert await streamed([COSTLY_PIECE], pool) == await streamed([COSTLY_PIECE])

    assert pool.tasks == 0
    await pool.close()


class SlowLoader(importlib.machinery.SourceFileLoader):
    """Loads a module that is already among the loaded ones while it is not whole yet."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, path)
        self.begun, self.may_end = threading.Event(), threading.Event()

    def exec_module(self, module: ModuleType) -> None:
        self.begun.set()
        self.may_end.wait()
        super().exec_module(module)

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name == self.name else None


async def test_streams_that_begin_while_arrow_is_being_loaded_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = await streamed([COSTLY_PIECE])
    loader = SlowLoader("ams.http.arrow", str(importlib.import_module("ams.http.arrow").__file__))
    for name in ("arrow", "arrow_stream"):  # an import sets both, so both are put back at the end
        monkeypatch.setattr(ams.http, name, importlib.import_module(f"ams.http.{name}"))
        monkeypatch.delitem(sys.modules, f"ams.http.{name}")
    monkeypatch.setattr(sys, "meta_path", [loader, *sys.meta_path])
    monkeypatch.setattr(sys.modules[__name__], "stream", importlib.import_module("ams.http.arrow_stream").stream)

    first = asyncio.create_task(streamed([COSTLY_PIECE]))
    await asyncio.to_thread(loader.begun.wait)
    second = asyncio.create_task(streamed([COSTLY_PIECE]))
    await asyncio.sleep(0)
    loader.may_end.set()

    assert [await first, await second] == [expected, expected]
