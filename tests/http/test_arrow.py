"""Messages as Arrow: the schema of the docs, and for every message what JSON lines say of it."""

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.clock import Milliseconds
from ams.core.messages import Stored, message
from ams.core.names import Offset
from ams.http.arrow import SCHEMA, batch, payload
from ams.http.arrow_stream import stream
from tests.support.texts import DECODED

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
