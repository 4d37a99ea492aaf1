"""Results of cases: one JSON line each on stdout, progress and a table on stderr."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the value that `percent` of the sorted values do not exceed; 0 when there are none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class Goal(msgspec.Struct, frozen=True):
    """A limit for a case's ratio; from the table of goals in `docs/how-to/bench.md`."""

    sign: str
    limit: float

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.limit if self.sign == ">=" else ratio <= self.limit

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:g}"


at_least = partial(Goal, ">=")
at_most = partial(Goal, "<=")


class Result(msgspec.Struct, omit_defaults=True):
    """One line of the bench."""

    case: str
    params: dict[str, int | str]
    values: dict[str, float]
    """Figures by name; the name has the unit."""
    ratio: float | None = None
    """Ratio to something measured in the same run, or to a fixed allowance; the goal judges it."""
    against: str = ""
    """Denominator of the ratio, in words."""
    goal: Goal | None = None

    @property
    def is_met(self) -> bool | None:
        return None if self.goal is None or self.ratio is None else self.goal.is_met(self.ratio)

    def as_json(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "params": self.params,
            "values": {name: _rounded(value) for name, value in self.values.items()},
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "against": self.against or None,
            "goal": str(self.goal) if self.goal else None,
            "met": self.is_met,
        }


def _rounded(value: float) -> float:
    """Return a figure with as many digits as it deserves."""
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def emit(result: Result) -> None:
    print(msgspec.json.encode(result.as_json()).decode(), flush=True)


def table(results: Sequence[Result]) -> str:
    rows = [("case", "ratio", "goal", "", "figures")]
    for each in results:
        params = " ".join(f"{name}={value}" for name, value in each.params.items())
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        met = {True: "met", False: "MISSED", None: ""}[each.is_met]
        figures = ", ".join(f"{name} {_rounded(value):g}" for name, value in each.values.items())
        rows.append((f"{each.case} {params}".strip(), ratio, str(each.goal or ""), met, figures))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    )
