"""What was found in a folder that should not be there: said at start, by `ams check`, and in the log."""

from typing import NamedTuple


class Damage(NamedTuple):
    """Bytes that are not what was written: never served, counted, and reported."""

    file: str
    position: int
    length: int
    """0 when unknown."""
    reason: str

    def __str__(self) -> str:
        return f"{self.file} at {self.position}: {self.reason} ({self.length} bytes)"


class Trimmed(NamedTuple):
    """The end of a segment that recovery cut away: it never became a whole, acknowledged append."""

    file: str
    position: int
    length: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} at {self.position}: {self.reason}, {self.length} bytes cut"


class Recovery(NamedTuple):
    """What recovery found and did."""

    segments: int
    topics: int
    scanned: int
    """Bytes of segments without an index, read whole."""
    trimmed: tuple[Trimmed, ...]
    damage: tuple[Damage, ...]
