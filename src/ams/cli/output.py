"""What goes to people and to programs: plain columns or JSON on stdout, everything else on stderr."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from ams.cli.exits import PipeClosed


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"


def emit(text: str) -> None:
    """Write a result to stdout at once; raise `PipeClosed` when its reader went away."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends; that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PipeClosed from None


def write(output: Format, result: object, text: str) -> None:
    """Write a result: as JSON for programs, or its text for people."""
    emit(document(result) if output is Format.JSON else text)


def note(text: str) -> None:
    """Say something about the progress of the work, on stderr."""
    print(text, file=sys.stderr, flush=True)


def document(value: object) -> str:
    """Write a value as one JSON document for programs."""
    return _safe(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def json_line(value: object) -> str:
    """Write a value as JSON in one line."""
    return _safe(msgspec.json.encode(value).decode())


def text_block(text: str) -> str:
    """Write text of several lines that others wrote; what could draw on a terminal is written as an escape."""
    return "\n".join(printable(line.expandtabs()) for line in text.strip().splitlines())


def _safe(text: str) -> str:
    """Return JSON in which what could draw on a terminal, or turn the order of its text, is written as an escape."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each).strip('"') for each in text)


def columns(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align rows under their headers; the last column is not padded, and nothing is cut."""
    lines = [headers, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in lines)


def fields(values: Mapping[str, str]) -> str:
    """Write names and values below each other; what is empty is left out."""
    shown = {name: printable(value) for name, value in values.items() if value}
    width = max(map(len, shown), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in shown.items())


def printable(text: str) -> str:
    """Return text with everything that would move a terminal's cursor written as an escape.

    Names, attributes and payloads come from others: they must not be able to draw on the reader's screen.
    """
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def short_name(resource: str) -> str:
    """Return the last part of a resource name, as people call the resource."""
    return resource.rpartition("/")[2]
