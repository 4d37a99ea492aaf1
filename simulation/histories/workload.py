"""Clients of a service under faults: publishers, consumers, seekers, workers of parallel subscriptions.

Each decides by a random generator of its own. A seed repeats the decisions, but not their times.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from simulation.histories.attempts import (
    ACK,
    EXTEND,
    NACK,
    Ack,
    Attempt,
    Lease,
    Leased,
    Outcome,
    Publish,
    Pull,
    Seek,
    Settle,
)
from simulation.histories.client import LATE, Client, Kind, Tried
from simulation.histories.history import History
from simulation.histories.parallel_laws import Parallel
from simulation.histories.payload import is_poisoned, keyed_message, leased_message, message, read_lease

T = TypeVar("T", bound=Attempt)

OVERSHOOT_MESSAGES = 5  # messages past the delivered ones in a wrong acknowledgement
BULK_SIZE = 100
MAX_LEASED_PER_PULL = 60  # messages of a parallel pull: as many ids as an error can name
SHORT_LEASE_SECONDS = 1  # lease seconds when messages are dropped


@dataclass(frozen=True)
class Publisher:
    """Publishes requests of `sizes` messages (minimum, maximum).

    `keyed`: with an idempotency key, retried until answered. `ordered`: each message has an ordering key.
    """

    client: Client
    history: History
    random: random.Random
    topics: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    pause: float
    keyed: bool = False
    ordered: bool = False

    async def run(self) -> None:
        while self.client.goes_on:
            await self.publish(self.random.choice(self.topics), self.random.randint(*self.random.choice(self.sizes)))
            await asyncio.sleep(self.random.uniform(0, self.pause))

    async def publish(self, topic: str, size: int) -> Publish:
        request = self.client.next_request()
        names = tuple(f"{request}/{place}" for place in range(size))
        body = {"messages": [keyed_message(name) if self.ordered else message(name) for name in names]}
        kind = Kind.BULK if size >= BULK_SIZE else Kind.OTHER
        path = f"/topics/{topic}:publish"
        if self.keyed:
            tried = await self._insist(request, path, body, kind)
        else:
            tried = await self.client.attempt(request, path, body, kind)
        ids = tuple(int(each) for each in tried.document["messageIds"]) if tried.is_done else ()
        attempt = Publish(**tried.facts, topic=topic, names=names, ids=ids)
        self.history.add(attempt)
        return attempt

    async def _insist(self, request: str, path: str, body: object, kind: Kind) -> Tried:
        """Publish with a key until there is an answer; counts as one attempt."""
        first = tried = await self.client.attempt(request, path, body, kind, idempotency_key=request)
        while tried.facts["outcome"] is Outcome.UNKNOWN:
            tried = await self.client.attempt(request, path, body, kind, idempotency_key=request)
        if tried.facts["outcome"] is Outcome.REFUSED and tried is not first:
            return first
        return Tried({**tried.facts, "started": first.facts["started"]}, tried.document)


@dataclass(frozen=True)
class User:
    """Base of clients of one subscription that record their attempts."""

    client: Client
    history: History
    random: random.Random
    subscription: str

    async def call(self, verb: str, body: object, kind: Kind = Kind.OTHER, *, method: str = "POST") -> Tried:
        path = f"/subscriptions/{self.subscription}:{verb}"
        return await self.client.attempt(self.client.next_request(), path, body, kind, method=method)

    def note(self, attempt: T) -> T:
        self.history.add(attempt)
        return attempt

    async def acknowledge_up_to(self, last: int, kind: Kind = Kind.OTHER) -> Ack:
        tried = await self.call(
            "acknowledge", {"ackIds": [f"{self.client.resource}/subscriptions/{self.subscription}:{last}"]}, kind
        )
        return self.note(Ack(**tried.facts, subscription=self.subscription, last=last))


@dataclass(frozen=True)
class Consumer(User):
    """Pulls and acknowledges all, some or no messages; at times too many, which is refused."""

    pause: float = 0.01

    async def run(self) -> None:
        while self.client.goes_on:
            await self.turn(wait=self.random.random() < 0.2)
            await asyncio.sleep(self.random.uniform(0, self.pause))

    async def turn(self, *, wait: bool) -> None:
        """Pull once, and acknowledge some messages."""
        pulled = await self.pull(self.random.randint(1, 400), wait=wait)
        if pulled.messages:
            await self._react(pulled)

    async def pull(self, size: int, *, wait: bool = False) -> Pull:
        tried = await self.call("pull", {"maxMessages": str(size), "returnImmediately": "false" if wait else "true"})
        messages = tuple(read_lease(each) for each in tried.document["receivedMessages"]) if tried.is_done else ()
        return self.note(Pull(**tried.facts, subscription=self.subscription, messages=messages))

    async def acknowledge(self, last: int) -> Ack:
        return await self.acknowledge_up_to(last, Kind.ACK)

    async def _react(self, pulled: Pull) -> None:
        mood = self.random.random()
        if mood < 0.6:
            await self.acknowledge(pulled.messages[-1].id)
        elif mood < 0.85:
            await self.acknowledge(self.random.choice(pulled.messages).id)
        elif mood < 0.88:
            await self.acknowledge_up_to(pulled.messages[-1].id + OVERSHOOT_MESSAGES)


@dataclass(frozen=True)
class Seeker(User):
    """Seeks back and forth. At times acknowledges messages from before a seek, which is refused."""

    pause: float = 0.3
    reach: int = 500

    async def run(self) -> None:
        while self.client.goes_on:
            await asyncio.sleep(self.random.uniform(0, self.pause))
            await self.turn()

    async def turn(self) -> None:
        """Seek once, and at times acknowledge messages from before it."""
        shown = await self.call("offsets", None, method="GET")
        if not shown.is_done:
            return
        end = int(shown.document["max"])
        sought = await self.seek(self.random.randint(max(0, end - self.reach), end))
        if sought.outcome is Outcome.DONE and sought.offset < end and self.random.random() < 0.3:
            await self.acknowledge_up_to(end - 1)

    async def seek(self, offset: int) -> Seek:
        tried = await self.call("modifyOffset", {"offset": offset})
        return self.note(Seek(**tried.facts, subscription=self.subscription, offset=offset))


@dataclass(frozen=True)
class Worker(User):
    """Worker of one parallel subscription. Poisoned messages always fail."""

    pause: float = 0.01
    settled: list[Leased] = field(default_factory=list)
    """Some acknowledged messages, to repeat their acknowledgement."""

    async def run(self) -> None:
        while self.client.goes_on:
            await self.turn(wait=self.random.random() < 0.2)
            await asyncio.sleep(self.random.uniform(0, self.pause))

    async def turn(self, *, wait: bool) -> None:
        """Pull once, and handle the messages."""
        given = await self.pull(self.random.randint(1, MAX_LEASED_PER_PULL), wait=wait)
        if given.messages:
            await self._handle(given.messages)

    async def work(self) -> int:
        """Pull once and handle all messages correctly; return their number."""
        given = await self.pull(MAX_LEASED_PER_PULL)
        await self._settle_all(given.messages)
        return len(given.messages)

    async def pull(self, most: int, *, wait: bool = False) -> Lease:
        body = {"maxMessages": str(most), "returnImmediately": "false" if wait else "true"}
        tried = await self.call("pull", body)
        messages = tuple(_to_leased(each) for each in tried.document["receivedMessages"]) if tried.is_done else ()
        return self.note(Lease(**tried.facts, subscription=self.subscription, messages=messages))

    async def _handle(self, messages: Sequence[Leased]) -> None:
        mood = self.random.random()
        if mood < 0.7:
            await self._settle_all(messages)
        elif mood < 0.8:
            cut = self.random.randint(1, len(messages))
            await self._settle_all(messages[:cut])
            await self._give_back(messages[cut:])
        elif mood < 0.9:
            await self.settle(EXTEND, messages, ackDeadlineSeconds=2)
            await asyncio.sleep(self.random.uniform(0, 0.5))
            await self._settle_all(messages)
        elif mood < 0.95:
            await self.settle(EXTEND, messages, ackDeadlineSeconds=SHORT_LEASE_SECONDS)  # these are dropped and expire
        else:
            await self._settle_all(messages)
            await self.settle(ACK, [*messages, *self.settled][:MAX_LEASED_PER_PULL])

    async def _settle_all(self, messages: Sequence[Leased]) -> None:
        """Acknowledge good messages, and nack poisoned ones."""
        good = [each for each in messages if not is_poisoned(each.name)]
        if good:
            await self.settle(ACK, good)
            self.settled[:] = good[:5]
        await self._give_back([each for each in messages if is_poisoned(each.name)])

    async def _give_back(self, messages: Sequence[Leased]) -> None:
        if messages and self.random.random() < 0.8:
            await self.settle(NACK, messages, **self.random.choice(({}, {}, {"delaySeconds": 0})))
        elif messages:
            await self.settle(EXTEND, messages, ackDeadlineSeconds=0)

    async def settle(self, verb: str, messages: Sequence[Leased], **more: int) -> Settle:
        """Acknowledge, nack or extend messages, and record it; `more`: further fields of the request."""
        ids = tuple(each.ack_id for each in messages)
        tried = await self.call(verb, {"ackIds": ids, **more}, Kind.SETTLE)
        seconds = more.get("ackDeadlineSeconds", 0)
        facts, late = tried.facts, _late(tried.refusal, ids)
        if tried.refusal.startswith(LATE):
            facts["outcome"] = Outcome.DONE  # for the other ids
        noted = NACK if verb == EXTEND and not seconds else verb
        name = self.subscription
        return self.note(Settle(**facts, subscription=name, verb=noted, ids=ids, late=late, seconds=seconds))


def workers_of(
    kinds: Sequence[Parallel],
    each: int,
    client: Callable[[str], Client],
    history: History,
    chance: random.Random,
    pause: float = Worker.pause,
) -> list[Worker]:
    """Make this many workers for each subscription; `client` makes a client by name."""
    return [
        Worker(client(f"{kind.name}-w{number}"), history, random.Random(chance.random()), kind.name, pause)
        for kind in kinds
        for number in range(each)
    ]


def _to_leased(received: dict[str, Any]) -> Leased:
    body = received["message"]
    return leased_message(body["messageId"], body.get("attributes", {}), body["data"], received["ackId"])


def _late(refusal: str, ids: Sequence[str]) -> tuple[str, ...]:
    """Return the ids that an error names."""
    said = refusal.partition(": ")[2].split(", ") if refusal.startswith(LATE) else []
    return tuple(each for each in ids if each.rpartition(":")[2] in said)
