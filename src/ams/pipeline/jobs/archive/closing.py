"""Merging closed days: which partitions of an archive have become many small files and will hardly get more."""

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta

from ams.pipeline.tables import Table
from ams.tables.files import File

TOGETHER_BYTES = 2**30
"""Partitions are merged together in one pass up to so many bytes: a pass costs time, however small it is."""
TOGETHER = 200
"""Partitions of one pass."""


def merge_closed(table: Table, today: date, closed_after: int, file_bytes: int) -> int:
    """Merge the days of an archive that are closed, and return of how many topics and days.

    Args:
        table: the archive, between two batches.
        today: in UTC.
        closed_after: days after its end that a day is closed.
        file_bytes: how large files become; a larger one is begun anew.
    """
    found = worth_merging(table.files(), today - timedelta(days=closed_after), file_bytes)
    for partitions in passes(found):
        table.merge([each[0].partition for each in partitions], file_bytes=file_bytes)
    return len(found)


def worth_merging(files: Iterable[File], open_from: date, file_bytes: int) -> list[Sequence[File]]:
    """Return the files of each partition before the day `open_from` that has far more of them than it needs."""
    by_partition: dict[tuple[str | None, ...], list[File]] = {}
    for file in files:
        by_partition.setdefault(tuple(file.partition.values()), []).append(file)
    return [each for each in by_partition.values() if _is_closed(each[0], open_from) and _is_split(each, file_bytes)]


def passes(partitions: Sequence[Sequence[File]]) -> Iterator[list[Sequence[File]]]:
    """Put partitions together for passes that are neither too many nor too large."""
    together: list[Sequence[File]] = []
    for each in partitions:
        if together and (_bytes([*together, each]) > TOGETHER_BYTES or len(together) == TOGETHER):
            yield together
            together = []
        together.append(each)
    if together:
        yield together


def _is_closed(file: File, open_from: date) -> bool:
    return (file.partition["date"] or "") < open_from.isoformat()


def _is_split(files: Sequence[File], file_bytes: int) -> bool:
    return len(files) > max(1, math.ceil(sum(each.size for each in files) / file_bytes))


def _bytes(partitions: Sequence[Sequence[File]]) -> int:
    return sum(file.size for each in partitions for file in each)
