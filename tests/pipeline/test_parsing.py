"""Whatever a message holds, it is read or set aside; nothing else comes of it."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ams.pipeline.columns import MESSAGES
from ams.pipeline.errors import PipelineError
from ams.pipeline.parsing import Parse, _mapper, _parsed_schema

SCHEMA = StructType([StructField("number", LongType()), StructField("word", StringType())])


def read(parse: Parse, *payloads: bytes) -> list[tuple[Any, Any, Any]]:
    """Return number, payload and reason of each row."""
    at = datetime(2024, 3, 5, tzinfo=UTC)
    place = {"project": "p", "topic": "t", "message_id": "", "publish_time": at, "attributes": []}
    rows = [{**place, "offset": offset, "data": data} for offset, data in enumerate(payloads)]
    batch = pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(MESSAGES, timezone="UTC"))
    found = [row for each in _mapper(parse, _parsed_schema(SCHEMA))(iter([batch])) for row in each.to_pylist()]
    return [(row["record"] and row["record"]["number"], row["data"], row["reason"]) for row in found]


def numbers(data: bytes, _attributes: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for part in data.split():
        yield {"number": int(part), "word": "\ud800" if part == b"-1" else "x"}


def test_a_fault_of_a_parser_sets_its_message_aside_and_no_other() -> None:
    assert read(numbers, b"1 2", b"3 x 4", b"5") == [
        (1, None, None),
        (2, None, None),
        (3, None, None),
        (None, b"3 x 4", "cannot be read: ValueError"),
        (5, None, None),
    ]


def test_what_does_not_fit_into_its_column_is_set_aside_alone() -> None:
    assert read(numbers, b"1", b"9223372036854775808", b"-1", b"2") == [
        (1, None, None),
        (None, b"9223372036854775808", "holds what no column can hold: OverflowError"),
        (None, b"-1", "holds what no column can hold: UnicodeEncodeError"),
        (2, None, None),
    ]


@pytest.mark.parametrize("fault", [OSError("the file of a key is gone"), PipelineError("ours")])
def test_a_fault_of_ours_is_not_laid_on_the_message(fault: Exception) -> None:
    def parse(_data: bytes, _attributes: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        raise fault
        yield {}

    with pytest.raises(type(fault)):
        read(parse, b"1")
