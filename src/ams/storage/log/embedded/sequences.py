"""The numbers of segments: one row over all classes, none given twice."""

from dataclasses import dataclass


@dataclass(slots=True)
class Sequences:
    """Gives the next number."""

    last: int = 0

    def take(self) -> int:
        """Return a number that was not given before; also one whose segment could then not be made is used up."""
        self.last += 1
        return self.last
