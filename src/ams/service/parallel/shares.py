"""Limits of one subscription's memory: each consumer has a fair share of what may be out and of what may be held back.

So no consumer, also one that never comes back, leaves nothing to others.
"""

from ams.core.fair_share import fair_room
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
    return fair_room(MAX_OUT, backlog.out, backlog.leases.holders.get(holder, 0))


def room_bytes(backlog: Backlog, holder: str) -> int:
    """Return how many bytes of messages a consumer may be given now."""
    leases = backlog.leases
    return fair_room(MAX_OUT_BYTES, leases.bytes, leases.bytes_held_by(holder))


def may_scan(backlog: Backlog, holder: str) -> bool:
    """Whether a consumer may be given messages that were not given yet.

    Not when too many are held back already, or as many wait that failed with this consumer as are left to others.
    """
    room = fair_room(MAX_HELD_BACK, backlog.held_back, backlog.leases.waits_of(holder))
    return bool(room) and backlog.scan - backlog.floor < MAX_SPAN
