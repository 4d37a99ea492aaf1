"""Clients of the service: real HTTP bytes over the simulated network, and the outcome of each request."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ams.core.errors import OUTCOME_UNKNOWN, OutcomeUnknown
from bench.connection import CLOSED, Connection, Response, SerialClient, request
from simulation.histories.attempts import Facts, Outcome
from simulation.histories.client import LATE, Client, Kind, Tried, encode_body, error_text
from simulation.node import TOKEN, Node

ANSWER_SECONDS = 60.0
"""Deadline for any answer, however slow other parts are. A later answer is a violation."""
AGAIN_SECONDS = 0.2  # until a client tries to connect again
HALF_CLOSE_SHARE = 0.03  # share of requests after which the client sends nothing more
FOREVER = float("inf")
_ETAG = b"\r\netag: "
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
UNKNOWN_OUTCOMES = (OUTCOME_UNKNOWN, OutcomeUnknown.default_message)
RIGHT_REFUSALS = ("wrong ack", "no ack pending", LATE)


@dataclass
class Traffic:
    """Outcomes and violations of all clients."""

    stopping: bool = False
    patience: float = ANSWER_SECONDS  # seconds within which each answer has to come
    answers: Counter[str] = field(default_factory=Counter)  # by outcome
    violations: list[str] = field(default_factory=list)


class SimConnection(Connection):
    """A connection that keeps an answer's ETag, and the bodies of chunked answers."""

    def __init__(self) -> None:
        super().__init__()
        self.etag = ""
        self._chunks = b""

    def _take_head(self, head: bytes) -> None:
        _, _, named = head.partition(_ETAG)
        self.etag = named.partition(b"\r\n")[0].decode()
        super()._take_head(head)

    def _take_chunks(self, data: bytes) -> None:
        self._chunks += data
        super()._take_chunks(data)

    def _finish(self, answer: Response) -> None:
        if self._chunks:
            answer, self._chunks = answer._replace(body=_without_framing(self._chunks)), b""
        super()._finish(answer)


class SimClient(Client):
    """One client with one connection to the node, as a user of one project."""

    def __init__(
        self, name: str, node: Node, traffic: Traffic, project: str, chance: random.Random, token: str = TOKEN
    ) -> None:
        super().__init__(name, traffic)
        self.name, self.project, self.token = name, project, token
        self.resource = f"projects/{project}"
        self.node, self.traffic, self._chance = node, traffic, chance
        self._connection: SimConnection | None = None
        self.etag = ""  # of the last answer

    async def attempt(
        self, name: str, path: str, body: object, kind: Kind = Kind.OTHER, *, method: str = "POST", **headers: str
    ) -> Tried:
        """Make one attempt once the service can be reached; return its outcome."""
        found, _ = await self.ask(name, path, body, method=method, headers=headers)
        return found

    async def ask(
        self,
        name: str,
        path: str,
        body: object,
        *,
        method: str = "POST",
        allowed: tuple[str, ...] = (),
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[Tried, int]:
        """Make one attempt; return it and the status of the answer, 0 without one.

        `allowed` errors are no violation. A path is in the client's project, unless it begins with `/v1/`.
        """
        connection = await self._open_connection()
        world = self.node.world
        whole = path if path.startswith("/v1/") else f"/v1/projects/{self.project}{path}"
        pieces = request(method, whole, self.token, encode_body(body), **headers)
        started = world.now
        had_faults = self.node.has_disk_faults
        answer = await self._answer(connection, pieces, f"{name} ({method} {self.project}{path})")
        ended = world.now
        self.etag = connection.etag
        had_faults = had_faults or self.node.has_disk_faults
        if answer.status == CLOSED:
            self.close()
            self.traffic.answers["unknown"] += 1
            return Tried(Facts(request=name, started=started, ended=FOREVER, outcome=Outcome.UNKNOWN), None), CLOSED
        refusal = error_text(answer)
        if answer.status == 200:
            outcome = Outcome.DONE
        else:
            outcome = Outcome.UNKNOWN if refusal in UNKNOWN_OUTCOMES else Outcome.REFUSED
            ended = FOREVER if outcome is Outcome.UNKNOWN else ended
            self._judge(f"{name} ({method} {path})", answer, refusal, allowed, had_faults=had_faults)
        self.traffic.answers[outcome.value] += 1
        document = _decode_json(answer.body) if outcome is Outcome.DONE else None
        return Tried(
            Facts(request=name, started=started, ended=ended, outcome=outcome), document, refusal
        ), answer.status

    async def must(self, path: str, body: object, *, method: str = "POST") -> Any:
        """Retry a call until it succeeds, and return the document. For the setup and the end of a run."""
        for _ in range(20):
            found, status = await self.ask(self.next_request(), path, body, method=method, allowed=("409", "500"))
            if found.is_done:
                return found.document
            if status == 409:  # an unanswered request has created it
                return None
        raise AssertionError(f"{method} {path} was never answered with success: {found.refusal}")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _answer(self, connection: Connection, pieces: tuple[bytes, ...], said: str) -> Response:
        try:
            async with asyncio.timeout(self.traffic.patience):
                is_half_closed = self._chance.random() < HALF_CLOSE_SHARE and not _waits(pieces)
                if is_half_closed:
                    transport = connection._transport
                    assert transport is not None
                    asyncio.get_running_loop().call_soon(transport.write_eof)  # runs when the request is sent
                answer = await SerialClient(connection).ask(pieces)
                if is_half_closed:
                    self.close()
                return answer
        except TimeoutError:
            self.traffic.violations.append(f"deadline: {said} had no answer within {self.traffic.patience:.0f} s")
            return Response(CLOSED)

    async def _open_connection(self) -> SimConnection:
        while True:
            if self._connection is not None and not self._connection.closed:
                return self._connection
            try:
                _, self._connection = await asyncio.get_running_loop().create_connection(
                    SimConnection, "", self.node.port
                )
            except OSError:
                self._connection = None
                await asyncio.sleep(AGAIN_SECONDS)

    def _judge(self, said: str, answer: Response, refusal: str, allowed: tuple[str, ...], *, had_faults: bool) -> None:
        """Note an error that no client should meet."""
        if refusal.startswith(RIGHT_REFUSALS) or str(answer.status) in allowed:
            return
        if had_faults and (answer.status == 429 or (answer.status >= 500 and answer.retry_after)):
            return  # a full disk leaves no project a share of it
        self.traffic.violations.append(f"error: {said} was answered {answer.status} {refusal}")


def _decode_json(body: bytes) -> Any:
    """Parse one JSON document, or JSON lines."""
    if b"\n{" in body:
        return [json.loads(line) for line in body.splitlines()]
    return json.loads(body) if body else None


def _without_framing(chunks: bytes) -> bytes:
    found, rest = b"", chunks
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        found, rest = found + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return found


def _waits(pieces: tuple[bytes, ...]) -> bool:
    return b'"returnImmediately": "false"' in pieces[-1]
