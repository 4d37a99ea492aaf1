"""Small tables beside a definition, in CSV with a line of names, which rows are completed from."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.types import DataType

from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.payloads import from_text
from ams.pipeline.errors import Broken


def read_reference(
    value: Value, content: bytes, fields: Mapping[str, DataType], by: Sequence[str]
) -> list[dict[str, Any]]:
    """Read a table; raise `BadDocument` for columns it lacks, values of other types, and keys that are there twice."""
    try:
        lines = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        absent = [name for name in fields if name not in (lines.fieldnames or ())]
        if absent:
            raise bad(value.place, f"{value.text()} has no column {', '.join(absent)}")
        rows = [_row(line, fields) for line in lines]
    except (UnicodeDecodeError, csv.Error) as error:
        raise bad(value.place, f"{value.text()} is no CSV in UTF-8: {error}") from None
    except Broken as error:
        raise bad(value.place, f"{value.text()}, line {lines.line_num}: {error}") from None
    counted = Counter(tuple(row[name] for name in by) for row in rows)
    for key, count in counted.items():
        if count > 1:
            raise bad(value.place, f"{value.text()} has {', '.join(map(str, key))[:80]} twice")
    return rows


def _row(line: Mapping[str, str | None], fields: Mapping[str, DataType]) -> dict[str, Any]:
    return {name: from_text(line[name] or "", wanted, name) for name, wanted in fields.items()}
