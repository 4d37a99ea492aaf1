"""The ledger of faults: what each did to clients and which laws it broke; a table for people, JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields

COLUMNS = {
    "fault": "fault", "runs": "runs", "requests": "requests", "failed": "failed calls",
    "in_flight": "of them in flight", "longest": "longest call, s", "back": "back after, s", "worked": "worked",
    "streamed": "streamed", "taken_over": "taken over", "lost": "lost", "duplicated": "duplicated", "order": "order",
    "wrong_acks": "wrong acks",
}  # fmt: skip
_KINDS = {
    "lost": (" is lost", "skipped messages", "the client of subscription", "given nothing while", "forgotten: "),
    "duplicated": (" is stored as ids", "came back: ", "given twice: "),
    "order": ("out of order: ",),
    "wrong_acks": (
        "acknowledgement",
        "answered as if it had happened",
        "ended at",
        "late: ",
        "counted down: ",
        "refused",
    ),
}
"""By which words a violation is known as one of its kind; any other is one of order."""


@dataclass
class Entry:
    """What a fault did, in one run or in several."""

    fault: str
    runs: int = 1
    requests: int = 0
    failed: int = 0
    """Requests that were let down: no answer within ten seconds, or an error of the 500s."""
    in_flight: int = 0
    """Of them, publishes that were on their way when the fault came."""
    longest: float = 0.0
    """Seconds of the longest call; those of the library, which tries four times, are left out."""
    back: float = 0.0
    """Seconds until no call was let down or slow any more: since the fault came, or, where nothing can work while it
    lasts, since it ended."""
    worked: int = 0
    """Messages of parallel subscriptions whose acknowledgement was answered."""
    streamed: int = 0
    taken_over: int = 0
    lost: int = 0
    duplicated: int = 0
    order: int = 0
    wrong_acks: int = 0
    sent_again: int = 0
    """Messages stored twice because the official library sent them again after an answer did not come."""
    broken: list[str] = field(default_factory=list)

    def charge(self, violation: str) -> None:
        kind = next((kind for kind, words in _KINDS.items() if any(word in violation for word in words)), "order")
        setattr(self, kind, getattr(self, kind) + 1)
        self.broken.append(violation)


def total(entries: Sequence[Entry]) -> Entry:
    """Return one entry for several runs of a fault: sums, and the worst of what is no sum."""
    whole = Entry(entries[0].fault)
    for each in fields(Entry):
        values = [getattr(entry, each.name) for entry in entries]
        if each.type is int:
            setattr(whole, each.name, sum(values))
        elif each.type is float:
            setattr(whole, each.name, max(values))
    whole.broken = [sentence for entry in entries for sentence in entry.broken]
    return whole


def by_fault(entries: Sequence[Entry]) -> list[Entry]:
    names = dict.fromkeys(each.fault for each in entries)
    return [total([each for each in entries if each.fault == name]) for name in names]


def table(entries: Sequence[Entry]) -> str:
    rows = [[*COLUMNS.values()], *([_text(getattr(each, key)) for key in COLUMNS] for each in entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def line(entries: Sequence[Entry]) -> str:
    return json.dumps([{key: _rounded(value) for key, value in asdict(each).items()} for each in entries])


def _text(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _rounded(value: object) -> object:
    return round(value, 2) if isinstance(value, float) else value
