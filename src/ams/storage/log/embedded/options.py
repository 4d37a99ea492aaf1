"""What of the embedded log can be set."""

from dataclasses import dataclass
from typing import Literal

from ams.core.clock import Milliseconds

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Settings of an embedded log; sizes in bytes."""

    retention: Milliseconds = Milliseconds(7 * 24 * 3_600_000)  # of topics without an own one
    idempotency_window: Milliseconds | None = None  # None: as long as messages are kept, which is the most
    max_bytes: int | None = None  # size of `data_folder` above which the oldest segments go; None = no limit
    data_folder: str | None = None  # the folder `max_bytes` is about; None = the log's own
    min_free_bytes: int = 256 * MIB  # free space, the reserve not counted, below which appends are refused
    reserve_bytes: int = 64 * MIB  # given back when the disk is full, so that others can still commit
    segment_bytes: int = 256 * MIB  # size at which a segment is sealed
    segment_keys: int = 100_000  # keys after which a segment is sealed: until then they are in memory
    ahead_bytes: int = 8 * MIB  # how far pages are written before their records; 0: not at all
    sync: Literal["always", "interval"] = "always"  # interval: a power loss may take the last moments
    sync_interval_ms: int = 200
    group_bytes: int = MIB  # appends that are written and synced together: up to this size, or one
    check_interval_ms: int = 10_000  # how often retention is looked at
