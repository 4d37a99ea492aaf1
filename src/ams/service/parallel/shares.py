"""How much of one subscription's room each consumer may take: what is out and what is held back has its limits.

Each may have as much as it leaves free: one alone half of all, each of two a third, and so on. So no consumer, also one
that never comes back, leaves nothing to others.
"""

from ams.service.parallel.backlog import Backlog

MAX_OUT = 100_000
"""Messages that may be given and not settled; each takes about as much memory as a tuple in a dictionary."""
MAX_OUT_BYTES = 2**30
"""Bytes of these."""
MAX_HELD_BACK = 200_000
"""Messages that wait, are ready again, or are blocked by their key, before no new ones are looked at."""
MAX_SPAN = 2**24
"""Offsets from the floor to the newest that was given: one message that is never settled holds the others up then."""


def room(backlog: Backlog, holder: str) -> int:
    """Return how many messages a consumer may be given now."""
    if not room_bytes(backlog, holder):
        return 0
    return max(MAX_OUT - backlog.out - backlog.leases.holders.get(holder, 0), 0)


def room_bytes(backlog: Backlog, holder: str) -> int:
    """Return how many bytes of messages a consumer may be given now."""
    leases = backlog.leases
    return max(MAX_OUT_BYTES - leases.bytes - leases.bytes_held_by(holder), 0)


def may_scan(backlog: Backlog, holder: str) -> bool:
    """Whether a consumer may be given messages that were not given yet.

    Not when too many are held back already, or as many wait that failed with this consumer as are left to others.
    """
    free = MAX_HELD_BACK - backlog.held_back - backlog.leases.waits_of(holder)
    return free > 0 and backlog.scan - backlog.floor < MAX_SPAN
