"""The six statuses of monitoring, and how several become one: the operations AND and OR, or tables of one's own.

A status is one of the six words that monitoring results carry. An operation joins any number of them. The two that
availability reports use in production are orders: AND takes the worst, OR the best.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product

STATUSES = ("OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL")
"""All statuses, from the mildest to the worst."""

SEVERITY = {status: rank for rank, status in enumerate(STATUSES)}
"""How bad a status is: of two results with the same second the worse one counts, whichever arrived first."""

BEST_FIRST = ("OK", "WARNING", "CRITICAL", "UNKNOWN", "DOWNTIME", "MISSING")
"""The order in which OR looks for a status: the first one present is the outcome."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A way to join statuses, given as the outcome of each pair."""

    name: str
    table: Mapping[tuple[str, str], str]
    _known: dict[frozenset[str], str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a table whose outcome would depend on the order of what it joins.

        Raises:
            ValueError: a pair is missing, or the table is not idempotent, commutative and associative.
        """
        for a, b in product(STATUSES, repeat=2):
            if (a, b) not in self.table:
                raise ValueError(f"operation {self.name} does not say what {a} and {b} give")
        for a, b, c in product(STATUSES, repeat=3):
            if not self._is_lawful(a, b, c):
                raise ValueError(f"operation {self.name} gives another outcome for {a}, {b}, {c} in another order")

    def _is_lawful(self, a: str, b: str, c: str) -> bool:
        table = self.table
        same = table[a, a] == a and table[a, b] == table[b, a]
        return same and table[table[a, b], c] == table[a, table[b, c]]

    def over(self, statuses: Iterable[str]) -> str:
        """Join the statuses, at least one; how often each occurs and in which order does not matter."""
        present = frozenset(statuses)
        outcome = self._known.get(present)
        if outcome is None:
            outcome = self._known[present] = self._joined(present)
        return outcome

    def _joined(self, present: frozenset[str]) -> str:
        first, *others = sorted(present)
        for status in others:
            first = self.table[first, status]
        return first


def by_order(name: str, order: tuple[str, ...]) -> Operation:
    """Make the operation whose outcome is the first status of `order` that is present."""
    place = {status: number for number, status in enumerate(order)}
    return Operation(name, {(a, b): min(a, b, key=place.__getitem__) for a, b in product(order, repeat=2)})


AND = by_order("AND", STATUSES[::-1])
OR = by_order("OR", BEST_FIRST)
