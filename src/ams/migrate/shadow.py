"""Shadow traffic: sends clients' requests to the old and the new service, and reports different answers.

Only reads are sent, on the reference's routes. Requests come from a haproxy log or, mirrored, from a running haproxy
(`deploy/haproxy/mirror.lua`). No client waits for the comparison.
"""

import asyncio
import contextlib
import os
import random
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from ams.client.errors import Unreachable
from ams.http.asgi import Receive, Send, answer
from ams.http.operations import small_server
from ams.migrate.comparison import DifferenceKind, Read, different, read_of
from ams.migrate.requests import MAX_COMPARED_BYTES, MAX_REQUESTS, AnswerTooLarge, Side
from ams.web.server import listen, url_of

MAX_WAITING_REQUESTS = 100  # queue of requests; mirrored ones beyond it are skipped
MOST_KINDS = 200
MAX_UNANSWERED_REQUESTS = 5  # in a row; then a comparison from a log gives up
LONGEST_LINE = 64 * 1024
_ENTRY = r"(?:^|\s)\S+ \[[^\]]+\] (?P<place>\S+(?: \S+)?) -?\d+/-?\d+/-?\d+/-?\d+/\+?-?\d+ -?\d{1,3} \+?\d+ "
_QUOTED = re.compile(_ENTRY + r'.*"(?P<method>[A-Z]+) (?P<target>\S+)(?: HTTP/\d(?:\.\d)?)?"\s*$')
_PLAIN = re.compile(_ENTRY + r"\S+ \S+ (?P<method>[A-Z]+) (?P<target>\S+)(?: \S+)?\s*$")
_ESCAPED = re.compile("#([0-9A-F]{2})")  # haproxy's escapes
OWN_CLIENT = "<HTTPCLIENT>"


class ShadowRequest(NamedTuple):
    """A request for both services."""

    read: Read
    target: str  # path and query, from `/v1` on
    headers: Mapping[str, str] | None = None  # the client's; None: a token in the query, or ours


@dataclass(slots=True)
class RouteTally:
    """Counts of one route's requests."""

    asked: int = 0
    same: int = 0
    different: int = 0


@dataclass(slots=True)
class ShadowReport:
    """Result of a comparison."""

    routes: dict[str, RouteTally] = field(default_factory=dict)  # by action
    differences: dict[str, dict[object, tuple[DifferenceKind, int]]] = field(default_factory=dict)
    """By action, and place of the kind: kinds, each with a number of answers."""
    passed_over: Counter[str] = field(default_factory=Counter)  # reasons for skipped requests
    left_out: int = 0  # by sampling

    def count(self, action: str, kinds: Sequence[DifferenceKind]) -> None:
        """Add the result of one request."""
        tally = self.routes.setdefault(action, RouteTally())
        tally.asked += 1
        tally.same += not kinds
        tally.different += bool(kinds)
        for kind in kinds:
            known = self.differences.setdefault(action, {})
            if kind.place in known or len(known) < MOST_KINDS:
                first, count = known.get(kind.place, (kind, 0))
                known[kind.place] = first, count + 1


@dataclass
class Shadow:
    """Compares two services by given requests."""

    old: Side
    new: Side
    still: bool = False  # nobody publishes or consumes: counters and positions must be equal
    share: float = 1.0  # random share of requests to send
    most: int | None = None  # maximum number of compared requests
    patient: bool = False  # go on while a service is away
    report: ShadowReport = field(default_factory=ShadowReport)
    _begun: int = 0
    _without_answer: int = 0

    def request_to_compare(
        self, method: str, target: str, headers: Mapping[str, str] | None = None
    ) -> ShadowRequest | None:
        """Return the request to compare; None if it is skipped, which is counted with the reason."""
        read = read_of(target)
        reason = _reason(method, target, read, headers)
        if reason or read is None:
            self.report.passed_over[reason] += 1
            return None
        if self.share < 1.0 and random.random() >= self.share:  # noqa: S311 - a sample
            self.report.left_out += 1
            return None
        return ShadowRequest(read, target, headers)

    async def run(self, requests: AsyncIterator[ShadowRequest]) -> ShadowReport:
        """Compare all requests, up to `most`. Raises `Unreachable` if a service goes away."""
        ready: asyncio.Queue[ShadowRequest | None] = asyncio.Queue(MAX_REQUESTS)

        async def work() -> None:
            while (request := await ready.get()) is not None:
                await self._compare(request)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(MAX_REQUESTS):
                    group.create_task(work())
                async for request in requests:
                    await ready.put(request)
                    self._begun += 1
                    if self.most is not None and self._begun >= self.most:
                        break
                for _ in range(MAX_REQUESTS):
                    await ready.put(None)
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return self.report

    async def _compare(self, request: ShadowRequest) -> None:
        try:
            kinds = await self._different(request)
            if kinds:  # state may have changed between the two answers
                again = {each.place for each in await self._different(request)}
                kinds = [each for each in kinds if each.place in again]
        except AnswerTooLarge:
            self.report.passed_over[f"an answer of more than {MAX_COMPARED_BYTES >> 20} MiB"] += 1
            return
        except Unreachable:
            self.report.passed_over["no answer"] += 1
            self._without_answer += 1
            if not self.patient and self._without_answer >= MAX_UNANSWERED_REQUESTS:
                raise
            return
        self._without_answer = 0
        self.report.count(request.read.action, kinds)

    async def _different(self, request: ShadowRequest) -> list[DifferenceKind]:
        parts = urlsplit(request.target)
        headers = {} if request.headers is None and parse_qs(parts.query).get("key") else request.headers
        old, new = await asyncio.gather(*(each.ask(request.target, headers) for each in (self.old, self.new)))
        secrets = (*_tokens(request), self.old.token, self.new.token)
        admin = headers is None
        return different(request.read.action, old, new, still=self.still, admin=admin, secrets=secrets)


def _reason(method: str, target: str, read: Read | None, headers: Mapping[str, str] | None) -> str:
    if method != "GET":
        return "it writes" if method in ("POST", "PUT", "DELETE", "PATCH") else "another method"
    if read is None:
        return "no read of the reference"
    if read.writes:
        return read.writes
    if parse_qs(urlsplit(target).query).get("pageToken"):
        return "a page token means something to who gave it"
    if headers and "authorization" in headers and "x-api-key" not in headers:
        return "a login that the old service does not know"
    return ""


def _tokens(request: ShadowRequest) -> list[str]:
    parts = urlsplit(request.target)
    said = [each.partition("=")[2] for each in parts.query.split("&") if each.startswith("key=")]
    said += parse_qs(parts.query).get("key", [])
    if request.read.action == "users:byToken":
        said.append(parts.path.rpartition("/")[2])
    return [*said, *(request.headers or {}).values()]


def request_of(line: str) -> tuple[str, str] | None:
    """Return method and target, path and query as they came, in a line of haproxy's log; a syslog prefix is allowed.

    The format is `option httplog`, which ends in the quoted request, or that of `deploy/haproxy`, which ends in method,
    path (without query) and id. None for other lines, bad or cut requests, and those of haproxy itself (`OWN_CLIENT`).
    """
    found = _QUOTED.search(line) or _PLAIN.search(line)
    if found is None or OWN_CLIENT in found["place"]:
        return None
    target = _ESCAPED.sub(lambda each: chr(int(each[1], 16)), found["target"])
    if "://" in target.partition("?")[0]:  # HTTP/2: the whole URL
        target = "/" + target.partition("://")[2].partition("/")[2]
    return found["method"], target


async def logged_requests(shadow: Shadow, file: int) -> AsyncIterator[ShadowRequest]:
    """Yield the requests to compare from a log: a file, or a pipe that still grows."""
    async for line in _lines(file):
        if (found := request_of(line)) is None:
            shadow.report.passed_over["a line without a request"] += bool(line.strip())
        elif (request := shadow.request_to_compare(*found)) is not None:
            yield request


async def _lines(file: int) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    parts: asyncio.Queue[bytes] = asyncio.Queue(4)

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone
            part = b"-"
            while part:
                try:
                    part = os.read(file, LONGEST_LINE)
                except OSError:
                    part = b""
                asyncio.run_coroutine_threadsafe(parts.put(part), loop).result()

    threading.Thread(target=read, daemon=True).start()  # daemon: the program does not wait for it
    rest = b""
    while part := await parts.get():
        *lines, rest = (rest + part).split(b"\n")
        for each in lines:
            yield each.decode(errors="replace")
        rest = rest if len(rest) <= LONGEST_LINE else b"-"
    yield rest.decode(errors="replace")


_HEADERS = (b"x-api-key", b"authorization")


@contextlib.asynccontextmanager
async def copies(
    shadow: Shadow, port: int, stop: asyncio.Event
) -> AsyncIterator[tuple[str, AsyncIterator[ShadowRequest]]]:
    """Take mirrored requests on a loopback port, each answered at once. Yields the URL and the requests."""
    sock = listen("127.0.0.1", port, "port")
    waiting: asyncio.Queue[ShadowRequest] = asyncio.Queue(MAX_WAITING_REQUESTS)

    async def take(scope: Mapping[str, Any], _receive: Receive, send: Send) -> None:
        headers = {str(name, "latin-1"): str(value, "latin-1") for name, value in scope["headers"] if name in _HEADERS}
        query = scope["query_string"].decode("latin-1")
        target = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        if waiting.full():
            shadow.report.passed_over["too many at once"] += 1
        elif (request := shadow.request_to_compare(scope["method"], target, headers)) is not None:
            waiting.put_nowait(request)
        await answer(send, 202, b"", [])

    async def queued_requests() -> AsyncIterator[ShadowRequest]:
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not (stop.is_set() and waiting.empty()):
                coming = asyncio.ensure_future(waiting.get())
                await asyncio.wait([coming, stopping], return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    yield coming.result()
                else:
                    coming.cancel()
        finally:
            stopping.cancel()

    server = small_server(take, "shadow")
    server.start(sock)
    try:
        yield url_of("http", sock), queued_requests()
    finally:
        await server.stop()
