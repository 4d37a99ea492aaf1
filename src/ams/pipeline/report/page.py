"""Tables for terminals, and self-contained HTML pages without scripts."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as columns of text; numbers are right-aligned, with thousands separators.

    >>> print(table(("TOPIC", "MESSAGES"), [("a", 1200), ("long", None)]))
    TOPIC  MESSAGES
    a         1,200
    long          -
    """
    lines = [head, *([cell(value) for value in row] for row in rows)]
    columns = []
    for texts, to_right in zip(zip(*lines, strict=True), numeric(head, rows), strict=True):
        width = max(map(len, texts))
        columns.append([text.rjust(width) if to_right else text.ljust(width) for text in texts])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def cell(value: Any) -> str:
    """Format a value: thousands separators, floats with two digits, small ones with four, None as a dash.

    >>> [cell(value) for value in (12000, 1234.5, 0.0046, 0.0, None, float("nan"))]
    ['12,000', '1,234.50', '0.0046', '0.00', '-', '-']
    """
    if value is None or value != value:  # NaN
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}" if 0 < abs(value) < 0.01 else f"{value:,.2f}"
    return f"{value:,}" if _is_number(value) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def numeric(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[bool]:
    """Return, for each column, whether it holds only numbers."""
    return [all(row[at] is None or _is_number(row[at]) for row in rows) for at in range(len(head))]


class Figure(NamedTuple):
    """A plot of `plots`, which escapes labels, with its description."""

    svg: str
    caption: str


class Rows(NamedTuple):
    """A table; numbers are right-aligned."""

    head: Sequence[str]
    body: Sequence[Sequence[Any]]
    caption: str = ""

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """The names of the columns, and whether each holds numbers."""
        return list(zip(self.head, numeric(self.head, self.body), strict=True))


class Section(NamedTuple):
    """A part of a page."""

    title: str
    text: str = ""
    content: Sequence[Figure | Rows] = ()


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """Return the HTML; everything but the plots is escaped."""
    environment = Environment(
        loader=PackageLoader("ams.pipeline.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["cell"] = cell
    environment.tests["number"] = _is_number
    return environment.get_template("page.html").render(title=title, lead=lead, sections=sections)


def put(path: Path, content: str) -> None:
    """Replace a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(content, encoding="utf-8")
    os.replace(beside, path)
