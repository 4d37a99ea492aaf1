"""Output: plain columns or JSON on stdout, everything else on stderr."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from ams.cli.exit_codes import PipeClosed


class Format(StrEnum):
    """Output format."""

    TABLE = "table"
    JSON = "json"


def emit(text: str) -> None:
    """Write to stdout and flush. Raises `PipeClosed` if the reader is gone."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The interpreter flushes stdout again at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PipeClosed from None


def write(output: Format, result: object, text: str) -> None:
    """Write a result: as JSON for programs, or its text for people."""
    emit(document(result) if output is Format.JSON else text)


def note(text: str) -> None:
    """Print a line to stderr."""
    print(text, file=sys.stderr, flush=True)


def document(value: object) -> str:
    """Format a value as an indented JSON document."""
    return _safe(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def json_line(value: object) -> str:
    """Format a value as JSON in one line."""
    return _safe(msgspec.json.encode(value).decode())


def text_block(text: str) -> str:
    """Escape terminal control characters in untrusted text of several lines."""
    return "\n".join(printable(line.expandtabs()) for line in text.strip().splitlines())


def _safe(text: str) -> str:
    """Escape terminal and bidirectional control characters in JSON."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each).strip('"') for each in text)


def columns(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align rows under headers; the last column is not padded, nothing is cut."""
    lines = [headers, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in lines)


def cell(value: object) -> str:
    """Format a value: None is empty, a list has commas."""
    return "" if value is None else ", ".join(value) if isinstance(value, list | tuple) else str(value)


def fields(values: Mapping[str, object]) -> str:
    """Format names and values, one per line; empty values are left out."""
    texts = {name: cell(value) for name, value in values.items()}
    shown = {name: printable(text) for name, text in texts.items() if text}
    width = max(map(len, shown), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in shown.items())


def printable(text: str) -> str:
    """Escape characters that would move a terminal's cursor: names, attributes and payloads are untrusted."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def short_name(resource: str) -> str:
    """Return the last part of a resource name."""
    return resource.rpartition("/")[2]
