"""Settings of the embedded log, and where it is."""

from dataclasses import dataclass
from typing import Literal

from ams.core.clock import Clock, Milliseconds
from ams.core.retention_clock import RetentionClock
from ams.storage.files import Disk

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Settings of an embedded log; sizes in bytes."""

    retention: Milliseconds = Milliseconds(7 * 24 * 3_600_000)  # of topics without their own
    idempotency_window: Milliseconds | None = None  # None: as long as messages are kept, which is the maximum
    max_bytes: int | None = None  # size of `data_folder` above which the oldest segments are deleted; None = no limit
    data_folder: str | None = None  # the folder that `max_bytes` limits; None = the log's own
    min_free_bytes: int = 256 * MIB  # free space, without the reserve, below which appends are refused
    reserve_bytes: int = 64 * MIB  # deleted when the disk is full, so that others can still commit
    segment_bytes: int = 256 * MIB  # size at which a segment is sealed
    segment_keys: int = 100_000  # keys after which a segment is sealed: until then they are in memory
    ahead_bytes: int = 8 * MIB  # preallocation of the open segment; 0: off
    sync: Literal["always", "interval"] = "always"  # interval: a power loss may take the last moments
    sync_interval_ms: int = 200
    group_bytes: int = MIB  # maximum size of a group commit; a larger append is its own group
    check_interval_ms: int = 10_000  # interval of retention checks


@dataclass(frozen=True)
class LogPlace:
    """The folder of a log, and the disk, clocks and settings of all that works in it."""

    folder: str
    files: Disk
    clock: Clock
    retention_clock: RetentionClock  # for the expiry of messages and idempotency keys
    options: LogOptions
