"""A client of the whole cluster, by the address of haproxy or by those of nodes; it gives up after ten seconds."""

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.connection import CLOSED, Address, Connection, Response, SerialClient, connect, request
from tests.faults.attempts import Facts, Outcome
from tests.faults.cluster.calls import SERVER_ERRORS, Call, CallLog
from tests.faults.http_client import PROJECT, Kind, Tried

PATIENCE_SECONDS = 10.0
"""How long clients of the field wait for an answer."""
BREATH_SECONDS = 0.5
"""How long a client waits after it was let down: without it a fault of seconds would fill the history with failures."""
FOREVER = float("inf")
UNAVAILABLE = 503
_VERBS = ("publish", "pull", "acknowledge", "modifyOffset", "offsets")


@dataclass(frozen=True)
class Front:
    """Where clients come in."""

    address: Address
    token: str
    tls: ssl.SSLContext | None = None
    sends_again: bool = True
    """Whether a request may go to a second node when the first one that had it dies, as haproxy sees to."""


class FrontClient:
    """One client with one connection to each front; its requests are named after it and numbered."""

    def __init__(self, name: str, front: Front | Callable[[], Front], log: CallLog, what: str = "") -> None:
        """`front` may choose anew for each request; `what` is what its calls are, empty: what each asks for."""
        self._name = name
        self._front = front
        self._log = log
        self._what = what
        self._connections: dict[Address, Connection] = {}
        self._numbers = 0
        self._failed = ""

    @property
    def goes_on(self) -> bool:
        """Whether there is more to do."""
        return not self._log.stopping

    def next_request(self) -> str:
        """Name the next request."""
        self._numbers += 1
        return f"{self._name}-{self._numbers}"

    async def attempt(
        self,
        request_name: str,
        path: str,
        body: object,
        kind: Kind = Kind.OTHER,
        *,
        method: str = "POST",
        **headers: str,
    ) -> Tried:
        """Make one attempt and say what came of it.

        An error of the 500s may come from a node that had sent everything on before it lost who should answer, so it
        is as good as none: the request happened wholly, or not at all, and perhaps later. Only a node's own 503 says
        that nothing was done, where no other one had the request before.
        """
        tried, call = await self._once(request_name, path, body, method, headers)
        self._log.note(call._replace(again=request_name == self._failed))
        if call.failed:
            self._failed = request_name
            await asyncio.sleep(BREATH_SECONDS)
        return tried

    async def must(self, path: str, body: object, *, method: str = "POST") -> Any:
        """Call until it is answered with success, for a while, and return the document; not counted as a call."""
        give_up = time.monotonic() + 3 * PATIENCE_SECONDS
        while True:
            tried, call = await self._once(self.next_request(), path, body, method, {})
            if tried.done:
                return tried.document
            assert call.failed, f"{method} {path} was answered {call.status} {call.text}"
            assert time.monotonic() < give_up, f"{method} {path} was not answered with success: {call}"
            await asyncio.sleep(BREATH_SECONDS)

    def close(self) -> None:
        """End the connections."""
        for each in self._connections.values():
            each.close()
        self._connections.clear()

    async def _once(
        self, name: str, path: str, body: object, method: str, headers: Mapping[str, str]
    ) -> tuple[Tried, Call]:
        encoded = json.dumps(body).encode() if body is not None else b""
        front = self._front() if callable(self._front) else self._front
        pieces = request(method, PROJECT + path, front.token, encoded, x_request_id=name, **headers)
        started = time.monotonic()
        answer = await self._ask(front, pieces)
        ended = time.monotonic()
        outcome, text = _outcome(front, answer), _text(answer)
        call = Call(name, self._what or _what(path), started, ended, answer.status, text)
        document = json.loads(answer.body) if outcome is Outcome.DONE and answer.body else None
        until = FOREVER if outcome is Outcome.UNKNOWN else ended
        return Tried(Facts(request=name, started=started, ended=until, outcome=outcome), document, text), call

    async def _ask(self, front: Front, pieces: tuple[bytes, ...]) -> Response:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                answer = await SerialClient(await self._connected(front)).ask(pieces)
        except (TimeoutError, OSError):
            answer = Response(CLOSED)
        if answer.status == CLOSED and (connection := self._connections.pop(front.address, None)) is not None:
            connection.close()
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


def _text(answer: Response) -> str:
    """Return what an error says, haproxy's own pages included."""
    if answer.status in (CLOSED, 200):
        return ""
    try:
        return str(json.loads(answer.body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.body[:100].decode(errors="replace")
