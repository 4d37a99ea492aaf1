"""The sender: POSTs deliveries to endpoints, each on its own.

A connection that was kept may have been closed by the other side just when a request goes out on it. Such a request is
sent once more, on a fresh connection, if nothing of an answer came. The endpoint may then get the delivery twice, which
at-least-once allows and its id tells. Otherwise every endpoint that closes idle connections would look broken.
"""

import asyncio
import functools
import random
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from ams.core.clock import Clock, SystemClock
from ams.core.push_config import authority, is_https
from ams.outgoing.guard import Guard, Refused
from ams.push import circuit
from ams.push.answers import TEXT_BYTES, answer, is_success
from ams.push.circuit import CLOSED
from ams.push.connecting import Connection, Connector, Endpoint, Reply
from ams.push.endpoints import IDLE_SECONDS, Endpoints, Standing
from ams.push.failing import Progress, Unreachable
from ams.push.sending import Answer, CircuitOpen, Headers, SendFailed

NO_HTTPS = "The URL is no https URL; deliveries go to those only"


class _Delivery(NamedTuple):
    """A request to one endpoint."""

    endpoint: Endpoint
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    until: float
    """Loop time."""


class HttpSender:
    """Keeps the promise of `ams.push.sending.Sender` over HTTP/1.1 and TLS, through a guard."""

    def __init__(
        self,
        guard: Guard,
        trust: ssl.SSLContext,
        *,
        clock: Clock | None = None,
        idle_seconds: float = IDLE_SECONDS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._connector = Connector(guard, trust)
        self._endpoints = Endpoints(idle_seconds=idle_seconds)
        self._clock = clock or SystemClock()
        self._chance = chance

    async def send(self, url: str, headers: Headers, body: bytes, *, seconds: float) -> Answer:
        """POST a body; see `Sender`. Raises `SendFailed`, and `CircuitOpen` without asking."""
        endpoint = _place(url)
        until = asyncio.get_running_loop().time() + seconds
        delivery = _Delivery(endpoint, _encoded(headers), body, until)
        standing = self._endpoints.of(endpoint, self._now())
        self._check(standing)
        progress = Progress()
        standing.users += 1
        try:
            async with asyncio.timeout(seconds) as limit, standing.places:
                self._check(standing)  # others may have found out meanwhile
                reply = await self._counted(standing, delivery, progress, limit)
        except TimeoutError:
            raise SendFailed(f"No answer within {seconds:g} seconds, while {progress.step}") from None
        except (Refused, Unreachable) as error:
            raise SendFailed(str(error)) from error
        finally:
            standing.users -= 1
        return answer(reply, self._clock.wall() / 1000)

    def circuit(self, url: str) -> str:
        """Return how the circuit of an endpoint stands."""
        try:
            standing = self._endpoints.get(_place(url))
        except SendFailed:
            return CLOSED
        return circuit.name(standing.circuit, self._now()) if standing else CLOSED

    async def close(self) -> None:
        """End all idle connections; requests that go on end theirs."""
        self._endpoints.close()

    def _check(self, standing: Standing) -> None:
        now = self._now()
        if not circuit.allows(standing.circuit, now):
            raise CircuitOpen(circuit.wait(standing.circuit, now))

    async def _counted(
        self, standing: Standing, delivery: _Delivery, progress: Progress, limit: asyncio.Timeout
    ) -> Reply:
        """Ask, and tell the circuit what came of it."""
        before = standing.circuit
        begun = standing.circuit = circuit.begins(before, self._now())
        try:
            reply = await self._asked(standing, delivery, progress)
        except (asyncio.CancelledError, Refused) as error:
            if isinstance(error, asyncio.CancelledError) and limit.expired():
                self._failed(standing)
            elif standing.circuit is begun:  # it tells nothing of the endpoint: somebody else may find out
                standing.circuit = before
            raise
        except Unreachable:
            self._failed(standing)
            raise
        standing.circuit = circuit.succeeded(standing.circuit)
        return reply

    async def _asked(self, standing: Standing, delivery: _Delivery, progress: Progress) -> Reply:
        kept = self._endpoints.take(delivery.endpoint)
        if kept is not None:
            try:
                return await self._on(kept, delivery, progress)
            except Unreachable:
                if kept.was_heard:
                    raise
        connection = await self._connector.connect(delivery.endpoint, progress, delivery.until)
        return await self._on(connection, delivery, progress)

    async def _on(self, connection: Connection, delivery: _Delivery, progress: Progress) -> Reply:
        try:
            reply = await connection.ask(
                "POST", delivery.endpoint.target, delivery.headers, delivery.body, keep=TEXT_BYTES, progress=progress
            )
        except BaseException:
            await connection.abort()
            raise
        if connection.is_kept:
            self._endpoints.keep(connection)
        else:
            await connection.abort()
        if reply.cut and is_success(reply.status):  # who refuses has said so, however it goes on
            raise Unreachable(reply.cut)
        return reply

    def _failed(self, standing: Standing) -> None:
        standing.circuit = circuit.failed(standing.circuit, self._now(), self._chance())

    def _now(self) -> float:
        return self._clock.monotonic() / 1000


@functools.lru_cache(maxsize=10_000)
def _place(url: str) -> Endpoint:
    """Return where a URL leads to; raise `SendFailed` for what is no https URL."""
    if not is_https(url):
        raise SendFailed(NO_HTTPS)
    parts = urlsplit(url)
    path = parts.path or "/"
    return Endpoint(*authority(url), f"{path}?{parts.query}" if parts.query else path)


def _encoded(headers: Headers) -> list[tuple[bytes, bytes]]:
    for name, value in headers:
        if not value.isprintable() or value != value.strip():
            raise SendFailed(f"The value of the header {name} cannot be sent")
    try:
        return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]
    except UnicodeEncodeError:
        raise SendFailed("A header has characters that cannot be sent") from None
