"""Endpoints: ownership check, request slots, circuit breaker, and idle connections.

The owner of a push endpoint proves it by serving a hash that only the service knows. An endpoint is a whole URL, as one
host may have endpoints of many owners; one that hangs does not slow the others. Endpoints of a host and port share idle
connections. Only the number of idle connections is shared by all, and no request waits for it.
"""

import asyncio
import contextlib
import hmac
import ssl
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.core.backoff import Backoff
from ams.core.errors import Overloaded
from ams.core.names import ProjectId
from ams.outgoing.address_guard import AddressRefused, Guard
from ams.push.endpoint_connection import AttemptProgress, Connector, Endpoint, EndpointConnection, Place, Unreachable

HASH_PATH = "/ams_verification_hash"  # at the root of the endpoint's host (HTTP contract 13.4)
CHECK_SECONDS = 5.0  # for everything: finding the address, connecting, and the whole answer
MAX_CHECKS, MAX_CHECKS_OF_PROJECT = 16, 4  # at once: the server of the endpoint says how long each takes
MAX_CONCURRENT = 8  # requests to one endpoint
IDLE_SECONDS = 15.0  # after which an idle connection is closed
MAX_IDLE = 1000  # idle connections in all; the oldest is closed for another
MAX_FORGETTABLE = 10_000  # endpoints in the table before those without requests are removed
CLOSED, OPEN, HALF_OPEN = "closed", "open", "half-open"  # all requests go; none; one probe
FAILURES_TO_OPEN = 5  # in a row, after which the circuit opens
BACKOFF = Backoff(1.0, 60.0)  # seconds that the circuit stays open, give or take `JITTER`
JITTER = 0.15  # part by which a span varies, so that endpoints that failed together are probed one by one
PROBE_SECONDS = 45.0  # after which a probe without a result is forgotten: longer than any request
_PROBE_WAIT_SECONDS = 1.0  # how soon others look again what became of the probe


class CheckSlots:
    """Limits concurrent checks, in all and by project."""

    def __init__(self) -> None:
        self._taken: Counter[ProjectId] = Counter()

    @contextlib.contextmanager
    def hold_slot(self, project: ProjectId) -> Iterator[None]:
        """Hold a slot while the block runs. Raises `Overloaded` if none is free."""
        if self._taken[project] >= MAX_CHECKS_OF_PROJECT or self._taken.total() >= MAX_CHECKS:
            raise Overloaded("Too many push endpoints are verified at once")
        self._taken[project] += 1
        try:
            yield
        finally:
            self._taken[project] -= 1
            self._taken += Counter()  # drops zeros


class CheckFailed(Exception):
    """The endpoint did not show the hash; the text says why."""


class EndpointCheck:
    """Asks endpoints for their hash."""

    def __init__(self, guard: Guard, trust: ssl.SSLContext, seconds: float = CHECK_SECONDS) -> None:
        self._connector = Connector(guard, trust)
        self._seconds = seconds

    async def check(self, host: str, port: int, expected: str) -> None:
        """Check that `host` answers exactly the expected text. Raises `CheckFailed`."""
        progress = AttemptProgress()
        try:
            async with asyncio.timeout(self._seconds):
                until = asyncio.get_running_loop().time() + self._seconds
                connection = await self._connector.connect(Endpoint(host, port), progress, until)
                try:
                    keep = len(expected) + 1
                    reply = await connection.ask("GET", HASH_PATH, [], b"", keep=keep, progress=progress, closes=True)
                finally:
                    await connection.aclose()
        except TimeoutError:
            raise CheckFailed(f"No answer within {self._seconds:g} seconds, while {progress.step}") from None
        except (AddressRefused, Unreachable) as error:
            raise CheckFailed(str(error)) from error
        if reply.status != 200:
            raise CheckFailed("Wrong response status code")
        if reply.cut and len(reply.body) < keep:
            raise CheckFailed(reply.cut)
        if not hmac.compare_digest(reply.body, expected.encode()):
            raise CheckFailed("Wrong verification hash")


class Circuit(NamedTuple):
    """Circuit breaker of one endpoint, as a value. Times are monotonic seconds.

    After several requests in a row without an answer the circuit opens, longer each time. Then one request probes the
    endpoint. Only the transport counts: an answer of any status closes it.
    """

    failures: int = 0  # in a row, while closed
    openings: int = 0  # in a row without an answer in between; 0: closed
    until: float = 0.0  # when the next probe may go
    probe_until: float = 0.0  # end of the wait for the present probe; not after `until`: no probe

    def allows(self, now: float) -> bool:
        """Return whether a request may go; call `begins` before sending it."""
        return self.openings == 0 or now >= max(self.until, self.probe_until)

    def begins(self, now: float) -> "Circuit":
        """Return the state when an allowed request goes; of an open circuit it is the probe."""
        return self._replace(probe_until=now + PROBE_SECONDS) if self.openings else self

    def after_success(self) -> "Circuit":
        """Return the state after an answer, whatever its status."""
        return Circuit() if self.failures or self.openings else self

    def after_failure(self, now: float, random: float) -> "Circuit":
        """Return the state after a request without an answer; `random` is in [0, 1)."""
        if self.openings == 0 and self.failures + 1 < FAILURES_TO_OPEN:
            return Circuit(self.failures + 1)
        if self.openings and now < self.until:  # it was sent before the circuit opened: no news
            return self
        span = BACKOFF.nominal(self.openings) * (1 - JITTER + 2 * JITTER * random)
        return Circuit(0, self.openings + 1, now + span)

    def name(self, now: float) -> str:
        """Return `CLOSED`, `OPEN` or `HALF_OPEN`."""
        if self.openings == 0:
            return CLOSED
        return OPEN if now < self.until else HALF_OPEN

    def wait(self, now: float) -> float:
        """Return the seconds until a request may go; 0: now."""
        if self.allows(now):
            return 0.0
        return self.until - now if now < self.until else min(_PROBE_WAIT_SECONDS, self.probe_until - now)


@dataclass(slots=True, eq=False)
class EndpointState:
    """State of an endpoint."""

    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT))
    at_once: int = MAX_CONCURRENT
    circuit: Circuit = field(default_factory=Circuit)
    users: int = 0  # requests that go on or wait

    def allow(self, at_once: int) -> None:
        """Raise the number of slots to `at_once`."""
        while self.at_once < at_once:
            self.at_once += 1
            self.slots.release()


class Endpoints:
    """Table of endpoints, with their idle connections."""

    def __init__(self, *, idle_seconds: float = IDLE_SECONDS, max_idle: int = MAX_IDLE) -> None:
        self._idle_seconds, self._max_idle = idle_seconds, max_idle
        self._standings: dict[Endpoint, EndpointState] = {}
        self._idle: dict[EndpointConnection, None] = {}  # of all places, longest idle first
        self._idle_at: defaultdict[Place, list[EndpointConnection]] = defaultdict(list)  # the one used last is last
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    def get(self, endpoint: Endpoint) -> EndpointState | None:
        """Return the state of an endpoint; None: unknown."""
        return self._standings.get(endpoint)

    def of(self, endpoint: Endpoint, now: float) -> EndpointState:
        """Return the state of an endpoint, made if unknown; `now` in monotonic seconds."""
        standing = self._standings.get(endpoint)
        if standing is None:
            if len(self._standings) >= MAX_FORGETTABLE:
                # Those with no requests are forgotten, unless their circuit is open.
                known = self._standings.items()
                self._standings = {key: each for key, each in known if each.users or each.circuit.name(now) == OPEN}
            standing = self._standings[endpoint] = EndpointState()
        return standing

    def take(self, endpoint: Endpoint) -> EndpointConnection | None:
        """Return an idle connection for an endpoint that is still usable; None: there is none."""
        while idle := self._idle_at.get(endpoint.place):
            connection = idle[-1]
            self._remove(connection)
            if connection.is_kept:
                return connection
            connection.close()
        return None

    def keep(self, connection: EndpointConnection) -> None:
        """Keep an idle connection for a while."""
        if self._is_closed:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle[connection] = None
        self._idle_at[connection.endpoint.place].append(connection)
        if len(self._idle) > self._max_idle:
            self._drop(next(iter(self._idle)))
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_seconds, self._close_old)

    def close(self) -> None:
        """Close all idle connections, and keep no others."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._idle):
            self._drop(connection)

    def _close_old(self) -> None:
        self._sweep = None
        loop = asyncio.get_running_loop()
        for connection in list(self._idle):
            left = connection.idle_since + self._idle_seconds - loop.time()
            if left > 0 and connection.is_kept:
                self._sweep = loop.call_later(left, self._close_old)
                return
            self._drop(connection)

    def _drop(self, connection: EndpointConnection) -> None:
        self._remove(connection)
        connection.close()

    def _remove(self, connection: EndpointConnection) -> None:
        del self._idle[connection]
        place = connection.endpoint.place
        self._idle_at[place].remove(connection)
        if not self._idle_at[place]:
            del self._idle_at[place]
