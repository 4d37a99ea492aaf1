"""What the workers wrote down, against what was published."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from demo.books import done_in


class Balance(NamedTuple):
    """What became of the jobs."""

    published: int
    worked: int
    """Jobs that were done, each counted once."""
    lost: int
    """Jobs that were neither done nor put aside."""
    dead: int
    repeated: int
    """How often a job was done that had been done before."""

    @property
    def is_right(self) -> bool:
        """Whether nothing is lost, and just the broken job is put aside."""
        return self.lost == 0 and self.dead == 1


def balance(published: Sequence[str], books: Iterable[Path], dead: Sequence[str]) -> Balance:
    """Compare."""
    done = Counter(job for book in books for job in done_in(book))
    lost = set(published) - done.keys() - set(dead)
    return Balance(len(published), len(done), len(lost), len(dead), done.total() - len(done))
