"""The tables of `docs/reference/job-inputs.md`: how the jobs read each field of a producer's message."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ams.pipeline.errors import Broken

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "job-inputs.md").read_text()


ITEM = re.compile(r"`([^`]+)`(?: → `([^`]+)`)?(?:: `([^`]+)`)?")
"""A field, its column behind an arrow, and its example behind a colon."""
ITEMS = re.compile(f"{ITEM.pattern}(?:, {ITEM.pattern})*")


def rows(job: str, title: str) -> Iterator[list[str]]:
    """Yield the cells of each row of a table, without their backticks; a row with several fields is several rows."""
    section = PAGE.split(f"\n## {job}\n")[1].split("\n## ")[0].split(f"\n### {title}\n")[1].split("\n### ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield from expand_fields([cell.strip() for cell in line.strip("|").split("|")], [])


def expand_fields(cells: list[str], before: list[str]) -> Iterator[list[str]]:
    """Yield a row for each field of a row: `cells` are still to be read, `before` are the row's first cells."""
    if not cells:
        yield before
        return
    cell, *others = cells
    if not ITEMS.fullmatch(cell):
        yield from expand_fields(others, [*before, cell])
        return
    for name, column, example in ITEM.findall(cell):
        rest = list(others)
        if example:
            rest[-2] = f"`{example}`"
        if column:
            value = rest[-2].strip("`") if rest[-1] == "as it is" else rest[-1]
            rest[-1] = f"`{column}` {value}"
        yield from expand_fields(rest, [*before, name])


class Input(NamedTuple):
    """A row: a key of a format, such as a kind of record or file, with its values and their results."""

    form: str
    key: str
    example: str
    result: str


def inputs(job: str, forms: frozenset[str]) -> list[Input]:
    return [
        Input(form, key, example, result)
        for key, where, example, result in rows(job, "Keys")
        for form in (sorted(forms) if where == "all" else where.split(", "))
    ]


def check_row(row: Input, read: Callable[[Any], Any], message: object, plain: object, *, is_known: bool) -> None:
    """Check that a message is read as its row says; `plain` is the message without the row's field."""
    if row.result.startswith("set aside: "):
        check_reason(read, message, row.result.removeprefix("set aside: "))
        return
    found = read(message)
    if not row.result.startswith("not taken: "):
        _, column, value = row.result.split("`")
        assert format_cell(found[column]) == value.strip()
        assert found["not_taken"] == []
        return
    before, others = read(plain), [] if is_known else [row.key]
    assert {**found, "digest": ""} == {**before, "not_taken": others, "digest": ""}
    if "a version is told apart by it" in row.result:
        assert found["digest"] != before["digest"]
    assert is_known or row.result == f"not taken: counted as `{row.key}`"


def check_reason(read: Callable[[Any], Any], value: object, reason: str) -> None:
    with pytest.raises(Broken) as broken:
        read(value)
    assert str(broken.value) == reason


def format_cell(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, list):
        return ", ".join(" ".join(map(str, each.values())) for each in value)
    return str(value)
