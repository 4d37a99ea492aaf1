"""Endpoints: places and the circuit of each, so that one that hangs costs the others nothing; and idle connections.

An endpoint is a whole URL, as one host may have endpoints of many owners. Connections that nobody uses serve all
endpoints of a host and port. Their count is all that is shared by all, and nobody waits for that.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from ams.push.circuit import OPEN, Circuit, name
from ams.push.connecting import Connection, Endpoint, Place

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


class Endpoints:
    """All endpoints that are asked, and the connections to them that are kept."""

    def __init__(self, *, idle_seconds: float = IDLE_SECONDS, max_idle: int = MAX_IDLE) -> None:
        self._idle_seconds = idle_seconds
        self._max_idle = max_idle
        self._standings: dict[Endpoint, Standing] = {}
        self._idle: dict[Connection, None] = {}
        """Of all places, longest idle first."""
        self._idle_at: defaultdict[Place, list[Connection]] = defaultdict(list)
        """The one used last is last."""
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

    def take(self, endpoint: Endpoint) -> Connection | None:
        """Return an idle connection to where an endpoint is that still stands; None: there is none."""
        while idle := self._idle_at.get(endpoint.place):
            connection = idle[-1]
            self._remove(connection)
            if connection.is_kept:
                return connection
            connection.close()
        return None

    def keep(self, connection: Connection) -> None:
        """Keep a connection for the next request to where it goes, for a while."""
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
        self._remove(connection)
        connection.close()

    def _remove(self, connection: Connection) -> None:
        del self._idle[connection]
        place = connection.endpoint.place
        self._idle_at[place].remove(connection)
        if not self._idle_at[place]:
            del self._idle_at[place]

    def _forget(self, now: float) -> None:
        """Forget endpoints with no requests, unless their circuit is open."""
        self._standings = {
            endpoint: each
            for endpoint, each in self._standings.items()
            if each.users or name(each.circuit, now) == OPEN
        }
