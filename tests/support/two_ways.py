"""Two services with the same content in one event loop, one with the fast lane and one without, to compare answers."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ams.app.wiring import service
from ams.app.wiring.assembly import Service
from ams.core.clock import SystemClock
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.http.errors import refusal
from ams.http.fast_lane import LaneExchange
from ams.web.asgi_exchange import AsgiExchange
from ams.web.connection import Exchange, HttpConnection, Port
from ams.web.request_reader import RequestHead
from tests.support import shape
from tests.support.clock import ManualClock
from tests.support.line import Line, awaits_body
from tests.support.schedulers import at_once
from tests.support.waiting import wait_until_async

SERVICE_TOKEN = "the-service-token"
TOKEN = b"T" * 64  # placeholder for a user's token in requests, which differs between the services
_PACKET = 32 * 1024
_OWN_ID = re.compile(rb"\r\nx-request-id: [0-9a-f]{8}-[0-9a-f]+")  # a request id that the service made
_OF_BROKERS = re.compile(rb'(?<="publishTime":")[^"]*(?=")|(?<=\r\ncontent-length: )\d+')
"""Publish times, which brokers set by their own clock, and the length of the text with them."""


@dataclass(slots=True)
class CountingPort(Port):
    on_lane: int = 0

    def end_exchange(self, exchange: Exchange) -> None:
        self.on_lane += isinstance(exchange, LaneExchange) and exchange in self.exchanges
        Port.end_exchange(self, exchange)


class Way:
    def __init__(
        self, made: Service, clock: ManualClock, *, lane: bool, is_cluster: bool = False, **limits: Any
    ) -> None:
        self.made = made
        self.is_cluster = is_cluster
        self.clock = clock
        settings = made.settings
        self.port = CountingPort(
            made.lane.open if lane else self._open_over_asgi, refusal, max_header_bytes=settings.max_header_bytes,
            head_seconds=settings.request_seconds, body_seconds=settings.request_seconds,
            idle_seconds=settings.keep_alive_seconds, scheduler=limits.get("scheduler") or at_once(),
            default_headers=[(b"date", b"100%b of a day")],
        )  # fmt: skip
        self.has_half = False  # whether the last conversation ended inside a request
        self.tokens: dict[bytes, bytes] = {}  # tokens by their placeholders in requests, which have the same length

    @property
    def on_lane(self) -> int:
        """Return how many requests took the lane."""
        return self.port.on_lane

    def _open_over_asgi(self, connection: HttpConnection, head: RequestHead) -> Exchange:
        return AsgiExchange(connection, self.made.lane.asgi, head)

    def connect(self, line: Line | None = None) -> tuple[Line, HttpConnection]:
        """Return both ends of a new connection."""
        line = line or Line()
        protocol = HttpConnection(self.port, lambda: None)
        line.protocol = protocol
        protocol.connection_made(line)
        return line, protocol

    async def begin(self, packet: bytes) -> tuple[Line, Any]:
        """Send bytes on a new connection, in packets as on a network, and let others run after each."""
        line, protocol = self.connect()
        whole = self.with_tokens(packet)
        for at in range(0, len(whole), _PACKET):
            protocol.data_received(whole[at : at + _PACKET])
            for _ in range(10):
                await asyncio.sleep(0)
        return line, protocol

    async def send_packets(self, packets: Iterable[bytes], *, slowly: bool = False) -> tuple[bytes, bool]:
        """Return the output without its variable parts, and whether the connection is closed then.

        The packets come one after the other; with `slowly` each waits for the answers to the ones before.
        """
        line, protocol = self.connect()
        for packet in self._with_token(list(packets)):
            await wait_until_async(lambda: not line.is_paused or line.is_closed)
            if line.is_closed:
                break
            protocol.data_received(packet)
            if slowly:
                await self.wait_until_settled(protocol)
        await self.wait_until_settled(protocol)
        written = _OWN_ID.sub(b"", line.written)
        if self.is_cluster:
            written = _OF_BROKERS.sub(b"", written)
        for name, token in self.tokens.items():
            written = written.replace(token, name)
        result = written, line.is_closed
        self.has_half = protocol._reader.is_in_request and not line.is_closed
        protocol.connection_lost(None)
        await wait_until_async(lambda: not self.port.exchanges)
        return result

    def with_tokens(self, said: bytes) -> bytes:
        for name, token in self.tokens.items():
            said = said.replace(name, token)
        return said

    def _with_token(self, packets: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the packets with tokens, which may be cut into several of them."""
        said, at = self.with_tokens(b"".join(packets)), 0
        for packet in packets:
            yield said[at : at + len(packet)]
            at += len(packet)

    async def wait_until_settled(self, protocol: Any) -> None:
        """Wait until the only unfinished work on this connection is the client's."""
        await wait_until_async(lambda: protocol._held is None and (not self.port.exchanges or awaits_body(protocol)))
        await asyncio.sleep(0)

    def request_counters(self) -> tuple[Any, ...]:
        """Return the counters that requests change, except stored ones."""
        made = self.made
        return (
            made.api.answered, [(each is not None and each[1] is not None) for each in made.counts.published.values()],
            [(each.messages, each.bytes, each.last_messages) for each in made.counts.pulled.values()],
            made.counts.acknowledgements, made.failed_logins.attempts.failures,
        )  # fmt: skip

    def rate_counts(self) -> list[int]:
        """Return the counts for rates since the last call."""
        rates = self.made.lane.fast.gate._rates
        if rates is None or rates._users is None:
            return []
        found = sorted(rates._users._free_at.values())
        rates._users._free_at.clear()
        return found

    def held_resources(self) -> tuple[int, int, int, int]:
        """Return resources that must be free when all is answered: memory of bodies and answers, connections and
        tasks."""
        bodies, unread = self.made.lane.fast.bodies, self.made.lane.unread
        assert all(bool(share) == bool(share.used) for share in (bodies._share, unread))
        return (
            bodies._share.used + len(bodies._arriving), unread.used, len(self.port.connections),
            len(self.port.exchanges),
        )  # fmt: skip

    async def stored_messages(self) -> list[Any]:
        """Return all messages of all topics, and the position of each subscription."""
        log = self.made.log
        found: list[Any] = []
        for topic in await log.topics():
            bounds = await log.bounds(topic)
            read = await log.read(topic, bounds.oldest, max_messages=10**6, max_bytes=10**9)
            assert len(read) == bounds.end - bounds.oldest
            found.append([(each.offset, 0 if self.is_cluster else each.time, bytes(each.fragment)) for each in read])
        places = await self.made.cursors.places()
        return [sorted(found), sorted(each.offset for each in places.values())]

    async def audit_lines(self) -> list[Any]:
        """Return the audit log without its variable parts."""
        lines = await asyncio.to_thread(_lines_of, Path(self.made.folder.path))
        shown = ("action", "resource", "actor", "address", "code", "result", "reason")
        return [{name: each.get(name) for name in shown} for each in lines]


def _lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("audit*")) for line in file.read_text().splitlines()]


class TwoWays:
    def __init__(self, lane: Way, asgi: Way) -> None:
        self.lane, self.asgi = lane, asgi

    async def same(self, packets: Sequence[bytes], *, slowly: bool = False) -> bytes:
        """Send packets to both; return their answer, which must be the same, as must be their counts."""
        lane, asgi = [await each.send_packets(packets, slowly=slowly) for each in (self.lane, self.asgi)]
        assert lane == asgi, packets
        assert self.lane.request_counters() == self.asgi.request_counters(), packets
        rated = self.lane.rate_counts(), self.asgi.rate_counts()
        # ASGI counts an incomplete request after its head, the lane does not count it.
        assert rated[0] == rated[1] or self.lane.has_half, packets
        assert self.lane.held_resources() == self.asgi.held_resources() == (0, 0, 0, 0), packets
        return lane[0]

    def forget_heads(self) -> None:
        """Clear the cache of heads."""
        self.lane.made.lane.fast._heads.clear()

    async def check_content(self) -> None:
        """Check that both have the same messages and audit log."""
        assert await self.lane.stored_messages() == await self.asgi.stored_messages()
        assert await self.lane.audit_lines() == await self.asgi.audit_lines()


FURNITURE = (
    ("POST", "/projects/P", "{}"), ("PUT", "/projects/P/topics/T", ""), ("PUT", "/projects/P/topics/Other", ""),
    ("POST", "/projects/P/schemas/X", '{"type":"json","schema":{"type":"object","required":["name"]}}'),
    ("PUT", "/projects/P/topics/Strict", '{"schema":"projects/P/schemas/X"}'),
    ("PUT", "/projects/P/subscriptions/S", '{"topic":"projects/P/topics/T"}'),
    ("POST", "/users/u", '{"projects":[{"project":"P","roles":["publisher","consumer"]}]}'),
    ("POST", "/projects/P/topics/T:modifyAcl", '{"authorized_users":["u"]}'),
    ("POST", "/projects/P/topics/Strict:modifyAcl", '{"authorized_users":["u"]}'),
    ("POST", "/projects/P/subscriptions/S:modifyAcl", '{"authorized_users":["u"]}'),
)  # fmt: skip


@contextlib.asynccontextmanager
async def one_way(data: Path, *, lane: bool, is_cluster: bool = False, **settings: Any) -> AsyncIterator[Way]:
    """Open one of them in its own folder, with a project, topics, a subscription and a user.

    Kafka's and PostgreSQL's clocks cannot be set, so there the manual clock starts at the current time.
    """
    is_cluster = is_cluster or shape.is_cluster()
    limits = {name: settings.pop(name) for name in ("scheduler",) if name in settings}
    files, clock = settings.pop("files", None), ManualClock(SystemClock().wall()) if is_cluster else ManualClock()
    usual: dict[str, Any] = {"push_enabled": False, "service_token": SERVICE_TOKEN, "pull_wait": 0.0}
    usual |= {"min_free_bytes": 0, "reserve_bytes": 0}
    parts = shape.on_cluster(data) if is_cluster else {}
    chosen = Settings(data=str(data), **(usual | parts | settings))
    async with service(chosen, Supervisor(), clock=clock, files=files) as made:
        made.counting.rounds.cancel()  # its rounds would consume counts that are compared
        way = Way(made, clock, lane=lane, is_cluster=is_cluster, **limits)
        for method, path, body in FURNITURE:
            answered, _ = await way.send_packets([request(method, path, body)])
            assert answered.startswith(b"HTTP/1.1 200"), answered
            if path == "/users/u":
                found = re.search(rb'"token":"([0-9a-f]{64})"', answered)
                assert found
                way.tokens[TOKEN] = found[1]
        made.api.answered[:] = [0] * 6
        yield way


@contextlib.asynccontextmanager
async def two_ways(folder: Path, **settings: Any) -> AsyncIterator[TwoWays]:
    """Open both in their own folders; with `is_cluster` on Kafka and PostgreSQL."""
    async with (
        one_way(folder / "lane", lane=True, **settings) as lane,
        one_way(folder / "asgi", lane=False, **settings) as asgi,
    ):
        yield TwoWays(lane, asgi)


def request(method: str, path: str, body: str | bytes = "", token: str = SERVICE_TOKEN, headers: str = "") -> bytes:
    said = body.encode() if isinstance(body, str) else body
    head = f"{method} /v1{path} HTTP/1.1\r\nHost: x\r\nx-api-key: {token}\r\n{headers}Content-Length: {len(said)}\r\n"
    return head.encode() + b"\r\n" + said
