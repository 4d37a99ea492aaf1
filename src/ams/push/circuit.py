"""The circuit: whether an endpoint is asked at all. Pure: state and time in, state out.

An endpoint that does not answer several times in a row is left alone for a while, longer each time it still does not;
then one request finds out. Only the transport counts: an endpoint that answers, with any status, is there.
"""

from typing import NamedTuple

from ams.core.backoff import Backoff

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half-open"  # names: requests go through; none does; one does, to see

FAILURES = 5  # in a row, after which the circuit opens
BACKOFF = Backoff(1.0, 60.0)  # for how long it is open: longer each time it opens again, within `JITTER` of these
JITTER = 0.15
"""Part of a span by which it is made shorter or longer, so that endpoints that failed together are asked one by one."""
PROBE_SECONDS = 45.0
"""After which a probe without a result is forgotten: more than any request takes, so only a cancelled one."""
_LOOK_AGAIN_SECONDS = 1.0  # how soon others look again what became of the probe


class Circuit(NamedTuple):
    """How the circuit of one endpoint stands. Times are monotonic seconds."""

    failures: int = 0  # in a row, while closed
    openings: int = 0  # in a row without an answer in between; 0: it is closed
    until: float = 0.0  # when the next probe may go
    probe_until: float = 0.0  # until when the probe that was sent is waited for; not after `until`: none was


_CLOSED = Circuit()


def allows(state: Circuit, now: float) -> bool:
    """Whether a request may go; before it is sent, `begins` notes it."""
    return state.openings == 0 or now >= max(state.until, state.probe_until)


def begins(state: Circuit, now: float) -> Circuit:
    """Return the state when a request goes that was allowed: of an open circuit it is the probe, and the only one."""
    return state._replace(probe_until=now + PROBE_SECONDS) if state.openings else state


def succeeded(state: Circuit) -> Circuit:
    """Return the state after an answer, whatever its status."""
    return state if state == _CLOSED else _CLOSED


def failed(state: Circuit, now: float, random: float) -> Circuit:
    """Return the state after a request without an answer; `random` is in [0, 1)."""
    if state.openings == 0:
        failures = state.failures + 1
        return Circuit(failures) if failures < FAILURES else _opened(1, now, random)
    if now < state.until:  # it was on its way when the circuit opened: it says nothing new
        return state
    return _opened(state.openings + 1, now, random)


def name(state: Circuit, now: float) -> str:
    """Return `CLOSED`, `OPEN` or `HALF_OPEN`."""
    if state.openings == 0:
        return CLOSED
    return OPEN if now < state.until else HALF_OPEN


def wait(state: Circuit, now: float) -> float:
    """Return the seconds until it is worth asking again; 0 where a request may go now."""
    if allows(state, now):
        return 0.0
    if now < state.until:
        return state.until - now
    return min(_LOOK_AGAIN_SECONDS, state.probe_until - now)


def _opened(openings: int, now: float, random: float) -> Circuit:
    nominal = BACKOFF.nominal(openings - 1)
    return Circuit(0, openings, now + nominal * (1 - JITTER + 2 * JITTER * random))
