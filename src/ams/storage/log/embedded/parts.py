"""The files a log is made of at one moment, for whoever copies them while it goes on."""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ams.storage.log.embedded.classes import CLASSES
from ams.storage.log.embedded.holdings import Holdings
from ams.storage.log.embedded.segment import HEAD_BYTES, sequence_of


class Part(NamedTuple):
    """A file of the log."""

    name: str
    """Its path within the log's folder."""
    length: int | None
    """How many bytes of it belong to the moment; None: all of it."""


def parts_of(holdings: Holdings) -> Sequence[Part]:
    """Return the files of an open log as they stand on the event loop: no message is in them by half."""
    parts = list(_parts_of(holdings))
    table = holdings.table and os.path.relpath(holdings.table, holdings.folder)
    if table and all(each.name != table for each in parts):  # its segment is gone
        parts.append(Part(table, None))
    return parts


def _parts_of(holdings: Holdings) -> Iterator[Part]:
    for segment in holdings.catalog:
        if segment.length > HEAD_BYTES:
            yield Part(os.path.relpath(segment.path, holdings.folder), segment.length)
        if segment.head is not None:
            yield Part(os.path.relpath(segment.index_path, holdings.folder), None)


def parts_in(folder: str) -> Sequence[Part]:
    """Return the files of a log nobody has open."""
    places = [kind.name for kind in CLASSES if os.path.isdir(os.path.join(folder, kind.name))]
    return [
        Part(os.path.join(place, name), None)
        for place in places
        for name in sorted(os.listdir(os.path.join(folder, place)))
        if sequence_of(name) is not None
    ]
