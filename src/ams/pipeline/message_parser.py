"""Parses messages into records, and sets unreadable ones aside with the reason."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ams.pipeline.columns import BROKEN, CONTENT, PLACE
from ams.pipeline.errors import Broken, PipelineError

_ROWS = 4096  # per Arrow batch: packed messages give a thousand times more rows

_UNFIT = (pa.ArrowException, ArithmeticError, TypeError, ValueError)  # of values that do not fit their columns

Message = dict[str, Any]
Row = dict[str, Any]  # a record or a broken message, by `_parsed_schema`
Parse = Callable[[bytes, Mapping[str, str]], Iterable["Mapping[str, Any] | Broken"]]
"""Reads the data and the attributes of a message; raises `Broken` for a message it cannot read, and yields one in the
place of each record it cannot read. Pure, and of a module that imports no Spark."""


def rows_of(messages: DataFrame, parse: Parse, schema: StructType) -> DataFrame:
    """Parse messages (`columns.CONTENT`) into a row for each record and each thing set aside.

    A row has `source`, `record` or `reason`, `attributes` and `data`.
    """
    return messages.select(*CONTENT.names).mapInArrow(_mapper(parse, _parsed_schema(schema)), _parsed_schema(schema))


def split(rows: DataFrame, schema: StructType) -> tuple[DataFrame, DataFrame]:
    """Split the rows of `rows_of` into records and broken messages.

    Records have the columns of the schema, and `source`, a struct of `columns.PLACE`. The others (`columns.BROKEN`)
    are a row for each message or record set aside.
    """
    columns = (F.col("record").getField(name).alias(name) for name in schema.names)
    place = (F.col("source").getField(name).alias(name) for name in PLACE.names)
    records = rows.where(F.col("reason").isNull()).select(*columns, "source")
    broken = rows.where(F.col("reason").isNotNull()).select(*place, "attributes", "data", "reason")
    return records, broken.select(*BROKEN.names)


def _parsed_schema(schema: StructType) -> StructType:
    row = StructType().add("source", PLACE, nullable=False).add("record", schema).add(CONTENT["attributes"])
    return row.add("data", "binary").add("reason", "string")


def _mapper(parse: Parse, schema: StructType) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def parse_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        arrow_schema = to_arrow_schema(schema, timezone="UTC")
        for batch in batches:
            rows = (row for message in batch.to_pylist() for row in _rows(message, parse))
            while part := list(islice(rows, _ROWS)):
                yield _in_arrow(part, arrow_schema)

    return parse_batches


def _rows(message: Message, parse: Parse) -> Iterator[tuple[Message, Row]]:
    try:
        for record in parse(message["data"], dict(message["attributes"])):
            is_broken = isinstance(record, Broken)
            yield message, _row(message, reason=str(record)) if is_broken else _row(message, record)
    except Broken as error:
        yield message, _row(message, reason=str(error))
    except (OSError, PipelineError):
        raise  # our fault, not the message's
    except Exception as error:  # no message may end a run
        yield message, _row(message, reason=f"cannot be read: {type(error).__name__}")


def _row(message: Message, record: Any = None, reason: str | None = None) -> Row:
    source = {name: message[name] for name in PLACE.names}
    attributes, data = ([], None) if reason is None else (message["attributes"], message["data"])
    return {"source": source, "record": record, "attributes": attributes, "data": data, "reason": reason}


def _in_arrow(rows: list[tuple[Message, Row]], schema: pa.Schema) -> pa.RecordBatch:
    try:
        return pa.RecordBatch.from_pylist([row for _, row in rows], schema=schema)
    except _UNFIT:
        return pa.RecordBatch.from_pylist([_fitting(message, row, schema) for message, row in rows], schema=schema)


def _fitting(message: Message, row: Row, schema: pa.Schema) -> Row:
    try:
        pa.RecordBatch.from_pylist([row], schema=schema)
    except _UNFIT as error:
        return _row(message, reason=f"holds what no column can hold: {type(error).__name__}")
    return row
