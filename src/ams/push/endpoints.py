"""Endpoints: places, idle connections and the circuit of each, so that one that hangs costs the others nothing.

Nothing here is shared by all but the count of idle connections, and nobody waits for that.
"""

import asyncio
from dataclasses import dataclass, field

from ams.push.circuit import OPEN, Circuit, name
from ams.push.connecting import Connection, Endpoint

AT_ONCE = 8
"""Requests to one endpoint."""
IDLE_SECONDS = 15.0
"""After which a connection nobody used is closed."""
MAX_IDLE = 1000
"""Connections kept in all; the one longest idle makes place for another."""
MAX_FORGETTABLE = 10_000
"""Endpoints in the table before those without requests are forgotten."""


def _places() -> asyncio.Semaphore:
    return asyncio.Semaphore(AT_ONCE)


@dataclass(slots=True, eq=False)
class Standing:
    """How an endpoint stands."""

    places: asyncio.Semaphore = field(default_factory=_places)
    circuit: Circuit = field(default_factory=Circuit)
    users: int = 0
    """Requests that go on or wait."""
    idle: list[Connection] = field(default_factory=list)
    """The one used last is last."""


class Endpoints:
    """All endpoints that are asked, and the connections to them that are kept."""

    def __init__(self, *, idle_seconds: float = IDLE_SECONDS, max_idle: int = MAX_IDLE) -> None:
        self._idle_seconds = idle_seconds
        self._max_idle = max_idle
        self._standings: dict[Endpoint, Standing] = {}
        self._idle: dict[Connection, None] = {}
        """Of all endpoints, longest idle first."""
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    def get(self, endpoint: Endpoint) -> Standing | None:
        """Return how an endpoint stands; None: nothing is known of it."""
        return self._standings.get(endpoint)

    def of(self, endpoint: Endpoint, now: float) -> Standing:
        """Return how an endpoint stands, at first as nobody knows it; `now` in monotonic seconds."""
        standing = self._standings.get(endpoint)
        if standing is None:
            if len(self._standings) >= MAX_FORGETTABLE:
                self._forget(now)
            standing = self._standings[endpoint] = Standing()
        return standing

    def take(self, standing: Standing) -> Connection | None:
        """Return an idle connection that still stands; None: there is none."""
        while standing.idle:
            connection = standing.idle.pop()
            del self._idle[connection]
            if connection.is_kept:
                return connection
            connection.close()
        return None

    def keep(self, connection: Connection) -> None:
        """Keep a connection for the next request to its endpoint, for a while."""
        if self._is_closed:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle[connection] = None
        self._standings[connection.endpoint].idle.append(connection)
        if len(self._idle) > self._max_idle:
            self._drop(next(iter(self._idle)))
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_seconds, self._close_old)

    def close(self) -> None:
        """End all idle connections, and keep no others."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in list(self._idle):
            self._drop(connection)

    def _close_old(self) -> None:
        """Close what is idle for too long, and look again when the next one may be."""
        self._sweep = None
        loop = asyncio.get_running_loop()
        for connection in list(self._idle):
            left = connection.idle_since + self._idle_seconds - loop.time()
            if left > 0 and connection.is_kept:
                self._sweep = loop.call_later(left, self._close_old)
                return
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        del self._idle[connection]
        self._standings[connection.endpoint].idle.remove(connection)
        connection.close()

    def _forget(self, now: float) -> None:
        """Forget endpoints with no requests and no connections, unless their circuit is open."""
        self._standings = {
            endpoint: each
            for endpoint, each in self._standings.items()
            if each.users or each.idle or name(each.circuit, now) == OPEN
        }
