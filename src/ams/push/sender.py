"""The sender POSTs deliveries to endpoints, and reads their answers.

The peer may close an idle connection just when a request goes out on it. Such a request is sent once more, on a new
connection, if no part of an answer came. The endpoint may then get the delivery twice, with the same id; at-least-once
allows it. Without this, every endpoint that closes idle connections would look broken.
"""

import asyncio
import functools
import random
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from ams.core.clock import Clock, SystemClock
from ams.core.push_config import authority, is_https, is_local_http
from ams.outgoing.address_guard import AddressRefused, Guard
from ams.push.endpoint_connection import (
    AttemptProgress,
    Connector,
    Endpoint,
    EndpointConnection,
    Reply,
    Unreachable,
    one_line,
)
from ams.push.endpoints import CLOSED, IDLE_SECONDS, Endpoints, EndpointState

Headers = Sequence[tuple[str, str]]

NO_HTTPS = "The URL is no https URL; deliveries go to those only"
TEXT_BYTES = 2048  # of an answer's body that are shown
_MAX_HEADER = 64  # bytes of a `Retry-After` that are looked at


class EndpointAnswer(NamedTuple):
    """Answer of an endpoint to a delivery."""

    status: int
    text: str  # the beginning of its body on one line, at most 2 KiB; empty on success
    retry_after: float | None = None  # seconds, from `Retry-After`; None: absent or unreadable


class SendFailed(Exception):
    """No complete answer came; the text says why, on one line."""


class NotAsked(SendFailed):
    """The endpoint was not asked; it costs no connection."""

    def __init__(self, text: str, seconds: float) -> None:
        super().__init__(text)
        self.seconds = seconds  # until it may be asked again


class CircuitOpen(NotAsked):
    """The circuit of the endpoint is open."""

    def __init__(self, seconds: float) -> None:
        super().__init__("The endpoint does not answer; it is left alone for a while", seconds)


class _Delivery(NamedTuple):
    endpoint: Endpoint
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    until: float  # loop time


class HttpSender:
    """Sends requests over HTTP/1.1 and TLS, through a guard. A slow endpoint does not delay others."""

    def __init__(
        self,
        guard: Guard,
        trust: ssl.SSLContext,
        *,
        clock: Clock | None = None,
        idle_seconds: float = IDLE_SECONDS,
        local_http: bool = False,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._connector = Connector(guard, trust)
        self._endpoints = Endpoints(idle_seconds=idle_seconds)
        self._local_http, self._chance = local_http, chance
        self._clock = clock or SystemClock()

    async def send(
        self, url: str, headers: Headers, body: bytes, *, seconds: float, at_once: int = 0
    ) -> EndpointAnswer:
        """POST a body; return the answer, whatever its status.

        `at_once`: concurrent requests to the endpoint, if more than usual. `seconds` covers everything: waiting for a
        slot, DNS, connecting, sending, the whole answer. Raises `SendFailed`, or `CircuitOpen` without sending.
        """
        endpoint = _place(url, self._local_http)
        until = asyncio.get_running_loop().time() + seconds
        delivery = _Delivery(endpoint, _encode_headers(headers), body, until)
        standing = self._endpoints.of(endpoint, self._now())
        self._check(standing)
        standing.allow(at_once)
        progress = AttemptProgress()
        standing.users += 1
        try:
            async with asyncio.timeout(seconds) as limit, standing.slots:
                self._check(standing)  # others may have found out meanwhile
                reply = await self._send_through_circuit(standing, delivery, progress, limit)
        except TimeoutError:
            raise SendFailed(f"No answer within {seconds:g} seconds, while {progress.step}") from None
        except (AddressRefused, Unreachable) as error:
            raise SendFailed(str(error)) from error
        finally:
            standing.users -= 1
        return answer(reply, self._clock.wall() / 1000)

    def circuit(self, url: str) -> str:
        """Return the state of an endpoint's circuit: `closed`, `open` or `half-open`."""
        try:
            standing = self._endpoints.get(_place(url, self._local_http))
        except SendFailed:
            return CLOSED
        return standing.circuit.name(self._now()) if standing else CLOSED

    async def close(self) -> None:
        """Close all idle connections; running requests close theirs."""
        self._endpoints.close()

    def _check(self, standing: EndpointState) -> None:
        now = self._now()
        if not standing.circuit.allows(now):
            raise CircuitOpen(standing.circuit.wait(now))

    async def _send_through_circuit(
        self, standing: EndpointState, delivery: _Delivery, progress: AttemptProgress, limit: asyncio.Timeout
    ) -> Reply:
        before = standing.circuit
        begun = standing.circuit = before.begins(self._now())
        try:
            reply = await self._ask_endpoint(standing, delivery, progress)
        except (asyncio.CancelledError, AddressRefused) as error:
            if isinstance(error, asyncio.CancelledError) and limit.expired():
                self._note_failure(standing)
            elif standing.circuit is begun:  # no news of the endpoint: another request may probe it
                standing.circuit = before
            raise
        except Unreachable:
            self._note_failure(standing)
            raise
        standing.circuit = standing.circuit.after_success()
        return reply

    async def _ask_endpoint(self, standing: EndpointState, delivery: _Delivery, progress: AttemptProgress) -> Reply:
        kept = self._endpoints.take(delivery.endpoint)
        if kept is not None:
            try:
                return await self._send_on(kept, delivery, progress)
            except Unreachable:
                if kept.was_heard:
                    raise
        connection = await self._connector.connect(delivery.endpoint, progress, delivery.until)
        return await self._send_on(connection, delivery, progress)

    async def _send_on(self, connection: EndpointConnection, delivery: _Delivery, progress: AttemptProgress) -> Reply:
        try:
            reply = await connection.ask(
                "POST", delivery.endpoint.target, delivery.headers, delivery.body, keep=TEXT_BYTES, progress=progress
            )
        except BaseException:
            await connection.aclose()
            raise
        if connection.is_kept:
            self._endpoints.keep(connection)
        else:
            await connection.aclose()
        if reply.cut and is_success(reply.status):  # a refusal counts even if its body is incomplete
            raise Unreachable(reply.cut)
        return reply

    def _note_failure(self, standing: EndpointState) -> None:
        standing.circuit = standing.circuit.after_failure(self._now(), self._chance())

    def _now(self) -> float:
        return self._clock.monotonic() / 1000


@functools.lru_cache(maxsize=10_000)
def _place(url: str, local_http: bool) -> Endpoint:
    is_plain = local_http and is_local_http(url)
    if not (is_plain or is_https(url)):
        raise SendFailed(NO_HTTPS)
    parts = urlsplit(url)
    path = parts.path or "/"
    return Endpoint(*authority(url), f"{path}?{parts.query}" if parts.query else path, is_plain)


def _encode_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    for name, value in headers:
        if not value.isprintable() or value != value.strip():
            raise SendFailed(f"The value of the header {name} cannot be sent")
    try:
        return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]
    except UnicodeEncodeError:
        raise SendFailed("A header has characters that cannot be sent") from None


def answer(reply: Reply, now: float) -> EndpointAnswer:
    """Return the answer of an endpoint; `now` in seconds since the epoch."""
    headers = [(name.lower(), value) for name, value in reply.headers]
    codings = {value.strip().lower() for name, value in headers if name == b"content-encoding"}
    is_compressed = not codings <= {b"", b"identity"}  # it has no text to show
    text = "" if is_success(reply.status) or is_compressed else excerpt(reply.body)
    waits = [value for name, value in headers if name == b"retry-after"]
    return EndpointAnswer(reply.status, text, retry_after(waits, now) if waits else None)


def is_success(status: int) -> bool:
    """Return whether a status is 2xx."""
    return 200 <= status < 300


def excerpt(body: bytes) -> str:
    """Return the beginning of a body on one line, without unprintable characters."""
    return one_line(body[:TEXT_BYTES].decode(errors="ignore"), TEXT_BYTES)


def retry_after(values: Sequence[bytes], now: float) -> float | None:
    """Return the seconds that a `Retry-After` asks for as number or date, at least 0; else None (RFC 9110, 10.2.3)."""
    if len(values) != 1 or len(values[0]) > _MAX_HEADER:
        return None
    said = values[0].decode("latin-1").strip()
    if said.isascii() and said.isdigit():
        return float(said)
    try:
        moment = parsedate_to_datetime(said)
        if moment.tzinfo is None:  # as the oldest of the three forms is
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, (moment - datetime.fromtimestamp(now, UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
