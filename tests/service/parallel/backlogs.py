"""Backlogs without a log: what was given of them is said by tests."""

from pyroaring import BitMap64

from ams.core.ack_ids import AckId, AckIds
from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.service.parallel.backlog import Backlog, Settling
from ams.service.parallel.message_state import Rules
from ams.storage.cursors.acks import Progress

DEADLINE = 1000
"""Milliseconds of a lease."""
RULES = Rules(Milliseconds(200), Milliseconds(3000))
GRACE = 2000
"""Until when ids of the run before are good."""
X, Y = "1.1.2.1.abcdef", "1.1.2.2.abcdef"
"""Hand-outs of the run before."""
NOW = Milliseconds(1)


def after_a_restart(rules: Rules = RULES) -> Backlog:
    """Return a subscription of four messages, in its third run, that may all be out by now."""
    progress = Progress(Offset(0), 1, 3, BitMap64(), {}, None)
    return Backlog(progress, "abcdef", rules, end=Offset(4), grace_until=Milliseconds(GRACE))


def exactly_once() -> Backlog:
    """Return a subscription of messages that were never given, with exactly-once delivery."""
    progress = Progress(Offset(0), 1, 3, BitMap64(), {}, None)
    rules = RULES._replace(exactly_once=True)
    return Backlog(progress, "abcdef", rules, end=Offset(0), grace_until=Milliseconds(0))


def give(backlog: Backlog, now: int, *offsets: int) -> dict[str, list[Offset]]:
    """Give messages, whatever was said of them; return their ids."""
    given = [Offset(each) for each in offsets]
    backlog.done.scanned(Offset(max(offsets) + 1))
    text = backlog.give(
        list(given), backlog.failures.attempt_of(given[0]), 10, Milliseconds(now + DEADLINE), "somebody"
    )
    return {text: given}


def store(backlog: Backlog, settling: Settling, now: int = NOW) -> Settling:
    """Let what is to be stored be on disk."""
    backlog.stored(settling, Milliseconds(now))
    return settling


def looked_at(backlog: Backlog, key: str = "", now: int = NOW) -> list[Offset]:
    """Look at all that was not seen yet; return what may be given."""
    here = backlog.undone(backlog.scan, Offset(4))
    found = [each for each in here if backlog.may_give(each, key, Milliseconds(now))]
    backlog.done.scanned(Offset(4))
    return found


def grouped(ids: list[AckId]) -> dict[str, list[Offset]]:
    """Return ids by their hand-outs, as requests name them."""
    found: dict[str, list[Offset]] = {}
    for each in ids:
        found.setdefault(each.hand_out, []).append(each.offset)
    return found


def ids_of(text: str, *numbers: int) -> AckIds:
    return {text: [Offset(each) for each in numbers]}
