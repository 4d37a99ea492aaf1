import json
from pathlib import Path
from typing import Any

Fields = dict[str, Any]

HEADER: Fields = {"kind": "header", "format": 1}


def ignore_progress(done: int, expected: int | None) -> None:
    """Ignore progress reports."""


def line(kind: str, **fields: object) -> Fields:
    return {"kind": kind, **fields}


def whole_export(*lines: Fields) -> list[Fields]:
    counts: dict[str, int] = {}
    for each in lines:
        counts[each["kind"]] = counts.get(each["kind"], 0) + 1
    return [HEADER, *lines, line("end", counts=counts)]


def write_lines(path: Path, lines: list[Fields]) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return str(path)
