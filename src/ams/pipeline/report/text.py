"""Tables for terminals."""

from collections.abc import Sequence
from typing import Any


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as columns of text, numbers to the right and parted by thousands.

    >>> print(table(("TOPIC", "MESSAGES"), [("a", 1200), ("long", None)]))
    TOPIC  MESSAGES
    a         1,200
    long          -
    """
    body = [[_cell(value) for value in row] for row in rows]
    numeric = [all(_is_number(row[at]) for row in rows) for at in range(len(head))]
    widths = [max(len(line[at]) for line in [head, *body]) for at in range(len(head))]
    return "\n".join(_line(line, widths, numeric) for line in [head, *body])


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    placed = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    )
    return "  ".join(placed).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
