"""Push: receivers that are late, fail and disconnect, with checks of deliveries and their order."""

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from simulation.histories.attempts import Outcome
from simulation.histories.payload import message, name_of
from simulation.process import SimProcess

if TYPE_CHECKING:
    from simulation.workload import Actor

TOPIC = "pushed"
ORDERED, MANY = "pushed-in-order", "pushed-at-once"
HOST = "10.0.0.2"
ALLOWED = f"{HOST}/32"
HASH_PATH = "/ams_verification_hash"
FIRST_PORT = 9000
DRAIN_SECONDS = 900.0
LATE_SECONDS = (0.1, 6.0)


@dataclass
class Receiver:
    """The receiver of one subscription, and its deliveries."""

    name: str
    chance: random.Random
    hash: str = ""
    accepts_all: bool = False  # accepts everything at once
    accepted: set[int] = field(default_factory=set)  # ids of accepted deliveries
    names: dict[int, str] = field(default_factory=dict)
    begun: int = 0  # first id of the newest delivery
    broken: list[str] = field(default_factory=list)

    def take(self, received: list[dict[str, Any]]) -> tuple[list[int], int]:
        """Receive a delivery; return its ids and the status of the answer, 0 for no answer."""
        ids = [int(each["message"]["messageId"]) for each in received]
        for each in received:
            body = each["message"]
            self.names[int(body["messageId"])] = name_of(body.get("attributes", {}), body["data"])
        if self.name == ORDERED:
            self.broken += self._out_of_order(ids)
        self.begun = max(self.begun, ids[0])
        if self.accepts_all:
            return ids, 200
        return ids, self.chance.choices((200, 500, 503, 0), (90, 5, 3, 2))[0]

    def _out_of_order(self, ids: list[int]) -> Iterator[str]:
        """Yield order violations: an ordered subscription delivers only after the last delivery was accepted."""
        if ids != list(range(ids[0], ids[0] + len(ids))):
            yield f"push: a delivery of {self.name} has ids that do not follow each other: {ids[:5]}"
        before = [each for each in range(ids[0]) if each not in self.accepted]
        if before:
            yield f"push: {self.name} was sent {ids[0]}, and {before[0]} was not accepted yet"
        # A delivery begins once the acknowledgement of earlier messages is on disk.
        if ids[0] < self.begun:
            yield f"push: {self.name} was sent {ids[0]} again, after a delivery had begun with {self.begun}"


class _Connection(asyncio.Protocol):
    """A connection to a receiver: one request at a time."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._data += data
        while True:
            head, found, rest = self._data.partition(b"\r\n\r\n")
            if not found:
                return
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            if len(rest) < size:
                return
            body, self._data = rest[:size], rest[size:]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        receiver = self._receiver
        if HASH_PATH.encode() in head:
            self._send(200, receiver.hash.encode())
            return
        document = json.loads(body)
        ids, status = receiver.take(document.get("messages", [document]))
        if not status:
            self._break_off()
            return

        def answer() -> None:
            if self._transport is None:
                return
            if status == 200:
                receiver.accepted.update(ids)
            self._send(status, b"")

        is_late = not receiver.accepts_all and receiver.chance.random() < 0.1
        asyncio.get_running_loop().call_later(receiver.chance.uniform(*LATE_SECONDS) if is_late else 0.0, answer)

    def _send(self, status: int, body: bytes) -> None:
        if self._transport is not None:
            self._transport.write(f"HTTP/1.1 {status} Said\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)

    def _break_off(self) -> None:
        if self._transport is not None:
            self._transport.abort()


@dataclass
class Pushed:
    """Push subscriptions of a project and their messages."""

    receivers: list[Receiver] = field(default_factory=list)
    stored: dict[int, str] = field(default_factory=dict)  # names of messages by their ids
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)


async def prepare(admin: "Actor", place: int) -> None:
    """Make the topic, its subscriptions, and their receivers."""
    client, process, own = admin.client, SimProcess.running(), admin.stage_shadow(Pushed)
    await client.must(f"/topics/{TOPIC}", None, method="PUT")
    for number, name in enumerate((ORDERED, MANY)):
        receiver = Receiver(name, random.Random(f"{admin.stage.project} {name} {process.world.seed}"))
        own.receivers.append(receiver)
        port = FIRST_PORT + 2 * place + number
        sock = process.world.network.listen(process, port)
        own.tasks.append(process.loop.create_task(sock.serve(partial(_Connection, receiver))))
        body: dict[str, object] = {
            "topic": f"{client.resource}/topics/{TOPIC}", "ackDeadlineSeconds": 10,
            "type": "ordered" if name == ORDERED else "parallel",
            "pushConfig": {
                "type": "http_endpoint", "pushEndpoint": f"https://{HOST}:{port}/hook",
                "maxMessages": 5, "retryPolicy": {"type": "linear", "period": 300},
            },
        }  # fmt: skip
        await client.must(f"/subscriptions/{name}", body, method="PUT")
        shown = await client.must(f"/subscriptions/{name}", None, method="GET")
        receiver.hash = shown["pushConfig"]["verificationHash"]
        await client.must(f"/subscriptions/{name}:verifyPushEndpoint", None)


async def publish(actor: "Actor") -> None:
    """Publish to the topic of the push subscriptions."""
    request = actor.client.next_request()
    names = [f"{request}/{place}" for place in range(actor.chance.randint(1, 8))]
    body = {"messages": [message(each) for each in names]}
    found, _ = await actor.change(f"/topics/{TOPIC}:publish", body)
    if found.facts["outcome"] is Outcome.DONE:
        ids = [int(each) for each in found.document["messageIds"]]
        actor.stage_shadow(Pushed).stored.update(zip(ids, names, strict=True))


async def drain(actor: "Actor") -> None:
    """Wait until all is delivered, and check that each message was accepted as published."""
    own, world = actor.stage_shadow(Pushed), actor.stage.node.world
    until = world.now + DRAIN_SECONDS
    for each in own.receivers:
        each.accepts_all = True
    for receiver in own.receivers:
        while True:
            shown = await actor.client.must(f"/subscriptions/{receiver.name}:offsets", None, method="GET")
            if int(shown["current"]) == int(shown["max"]):
                break
            if world.now > until:
                actor.stage.complain(f"liveness: {receiver.name} never came to its end: {shown}")
                break
            await asyncio.sleep(2)
        missing = sorted(set(range(int(shown["current"]))) - receiver.accepted)
        if missing:
            actor.stage.complain(f"forgotten: {receiver.name} has passed {missing[:5]}, which nobody accepted")
        wrong = [id_ for id_, name in own.stored.items() if id_ in receiver.names and receiver.names[id_] != name]
        if wrong:
            actor.stage.complain(f"push: {receiver.name} was sent {receiver.names[wrong[0]]} as {wrong[0]}")
        for said in receiver.broken:
            actor.stage.complain(said)
    for task in own.tasks:
        task.cancel()
