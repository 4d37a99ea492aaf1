"""A client of the whole cluster, by the address of haproxy or by those of nodes; it gives up after ten seconds."""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.connection import CLOSED, Address, Connection, Response, connect, request
from tests.faults.attempts import Outcome
from tests.faults.cluster.calls import SERVER_ERRORS, Call, CallLog
from tests.faults.http_client import FOREVER, PROJECT, Client, Kind, Tried, ask, encoded, tried

PATIENCE_SECONDS = 10.0
BREATH_SECONDS = 0.5
"""How long a client waits after it was let down: without it a fault of seconds would fill the history with failures."""
UNAVAILABLE = 503
_VERBS = ("publish", "pull", "acknowledge", "modifyOffset", "offsets")


@dataclass(frozen=True)
class Front:
    address: Address
    token: str
    tls: ssl.SSLContext | None = None
    sends_again: bool = True
    """Whether a request may go to a second node when the first one that had it dies, as haproxy sees to."""


class FrontClient(Client):
    """One client with one connection to each front."""

    def __init__(self, name: str, front: Front | Callable[[], Front], log: CallLog, what: str = "") -> None:
        """`front` may choose anew for each request; `what` is what its calls are, empty: what each asks for."""
        super().__init__(name, log)
        self._front, self._calls, self._what = front, log, what
        self._connections: dict[Address, Connection] = {}
        self._failed = ""

    async def attempt(
        self, name: str, path: str, body: object, kind: Kind = Kind.OTHER, *, method: str = "POST", **headers: str
    ) -> Tried:
        """Make one attempt and say what came of it.

        An error of the 500s may come from a node that had sent everything on before it lost who should answer, so it
        is as good as none: the request happened wholly, or not at all, and perhaps later. Only a node's own 503 says
        that nothing was done, where no other one had the request before.
        """
        found, call = await self._once(name, path, body, method, headers)
        self._calls.note(call._replace(again=name == self._failed))
        if call.failed:
            self._failed = name
            await asyncio.sleep(BREATH_SECONDS)
        return found

    async def must(self, path: str, body: object, *, method: str = "POST") -> Any:
        """Call until it is answered with success, for a while, and return the document; not counted as a call."""
        give_up = time.monotonic() + 3 * PATIENCE_SECONDS
        while True:
            found, call = await self._once(self.next_request(), path, body, method, {})
            if found.done:
                return found.document
            assert call.failed, f"{method} {path} was answered {call.status} {call.text}"
            assert time.monotonic() < give_up, f"{method} {path} was not answered with success: {call}"
            await asyncio.sleep(BREATH_SECONDS)

    def close(self) -> None:
        for each in self._connections.values():
            each.close()
        self._connections.clear()

    async def _once(
        self, name: str, path: str, body: object, method: str, headers: Mapping[str, str]
    ) -> tuple[Tried, Call]:
        front = self._front() if callable(self._front) else self._front
        pieces = request(method, PROJECT + path, front.token, encoded(body), x_request_id=name, **headers)
        started = time.monotonic()
        answer = await self._ask(front, pieces)
        ended = time.monotonic()
        outcome = _outcome(front, answer)
        found = tried(name, started, FOREVER if outcome is Outcome.UNKNOWN else ended, outcome, answer)
        return found, Call(name, self._what or _what(path), started, ended, answer.status, found.refusal)

    async def _ask(self, front: Front, pieces: tuple[bytes, ...]) -> Response:
        give_up = time.monotonic() + PATIENCE_SECONDS
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                connection = await self._connected(front)
            answer = await ask(connection, pieces, give_up - time.monotonic())
        except (TimeoutError, OSError):
            answer = Response(CLOSED)
        if answer.status == CLOSED and (closing := self._connections.pop(front.address, None)) is not None:
            closing.close()
        return answer

    async def _connected(self, front: Front) -> Connection:
        connection = self._connections.get(front.address)
        if connection is None or connection.closed:
            connection = self._connections[front.address] = await connect(front.address, front.tls)
        return connection


def _outcome(front: Front, answer: Response) -> Outcome:
    if answer.status == UNAVAILABLE and not front.sends_again:
        return Outcome.REFUSED
    if answer.status == CLOSED or answer.status in SERVER_ERRORS:
        return Outcome.UNKNOWN
    return Outcome.DONE if answer.status == 200 else Outcome.REFUSED


def _what(path: str) -> str:
    verb = path.rpartition(":")[2]
    return verb if verb in _VERBS else "read"
