"""What was reached of the goals, as the bench remembers it."""

from pathlib import Path
from typing import Any

import msgspec


def reached(history: Path) -> list[tuple[str, str, str, str, str]]:
    """Return case, ratio, what it is to, goal and whether it is met, by the last full run of each case that has a goal.

    Empty when there was no full run.
    """
    found: dict[str, dict[str, Any]] = {}
    for run in _runs(history):
        if not run["quick"]:
            found |= {_name(each): each for each in run["results"] if each["goal"]}
    return [_row(name, each) for name, each in found.items()]


def _runs(history: Path) -> list[dict[str, Any]]:
    if not history.exists():
        return []
    return [msgspec.json.decode(line) for line in history.read_bytes().splitlines()]


def _name(result: dict[str, Any]) -> str:
    params = " ".join(f"{name}={value}" for name, value in result["params"].items())
    return f"{result['case']} {params}".strip()


def _row(name: str, result: dict[str, Any]) -> tuple[str, str, str, str, str]:
    ratio = "-" if result["ratio"] is None else f"{result['ratio']:.2f}"
    return name, ratio, result["against"] or "", result["goal"], "met" if result["met"] else "missed"
