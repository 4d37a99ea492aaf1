"""Who uses the service while it is killed: publishers, consumers and seekers, each with its habits.

Everyone decides by a random generator of its own, so a seed repeats the decisions (not the moments).
"""

import asyncio
import random
from dataclasses import dataclass
from typing import TypeVar

from tests.faults.attempts import Ack, Attempt, Outcome, Publish, Pull, Seek
from tests.faults.history import History
from tests.faults.http_client import PROJECT, Client, Kind, Tried
from tests.faults.payload import held, keyed_message, message

T = TypeVar("T", bound=Attempt)

BEYOND = 5
"""How far behind what it was given a consumer acknowledges when it does so wrongly."""
BULK = 100
_PREFIX = PROJECT.removeprefix("/v1/")


@dataclass(frozen=True)
class Publisher:
    """Publishes requests of `sizes` messages (least, most); if `keyed`, with a key, and again until it is answered.

    If `ordered`, each message has an ordering key.
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
        kind = Kind.BULK if size >= BULK else Kind.OTHER
        path = f"/topics/{topic}:publish"
        if self.keyed:
            tried = await self._insist(request, path, body, kind)
        else:
            tried = await self.client.attempt(request, path, body, kind)
        ids = tuple(int(each) for each in tried.document["messageIds"]) if tried.done else ()
        attempt = Publish(**tried.facts, topic=topic, names=names, ids=ids)
        self.history.add(attempt)
        return attempt

    async def _insist(self, request: str, path: str, body: object, kind: Kind) -> Tried:
        """Publish with a key until there is an answer: one attempt, however often it was made."""
        first = tried = await self.client.attempt(request, path, body, kind, idempotency_key=request)
        while tried.facts["outcome"] is Outcome.UNKNOWN:
            tried = await self.client.attempt(request, path, body, kind, idempotency_key=request)
        if tried.facts["outcome"] is Outcome.REFUSED and tried is not first:
            return first
        return Tried({**tried.facts, "started": first.facts["started"]}, tried.document)


@dataclass(frozen=True)
class User:
    """Somebody who uses one subscription, and notes it."""

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
            "acknowledge", {"ackIds": [f"{_PREFIX}/subscriptions/{self.subscription}:{last}"]}, kind
        )
        return self.note(Ack(**tried.facts, subscription=self.subscription, last=last))


@dataclass(frozen=True)
class Consumer(User):
    """Pulls and acknowledges: all, a part, or nothing of what it was given; now and then more, which is refused."""

    pause: float = 0.01

    async def run(self) -> None:
        while self.client.goes_on:
            pulled = await self.pull(self.random.randint(1, 400), wait=self.random.random() < 0.2)
            if pulled.messages:
                await self._react(pulled)
            await asyncio.sleep(self.random.uniform(0, self.pause))

    async def pull(self, size: int, *, wait: bool = False) -> Pull:
        tried = await self.call("pull", {"maxMessages": str(size), "returnImmediately": "false" if wait else "true"})
        messages = tuple(held(each) for each in tried.document["receivedMessages"]) if tried.done else ()
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
            await self.acknowledge_up_to(pulled.messages[-1].id + BEYOND)


@dataclass(frozen=True)
class Seeker(User):
    """Moves a subscription back and forth, and acknowledges at times what was handed out before, which is refused."""

    pause: float = 0.3
    reach: int = 500

    async def run(self) -> None:
        while self.client.goes_on:
            await asyncio.sleep(self.random.uniform(0, self.pause))
            shown = await self.call("offsets", None, method="GET")
            if not shown.done:
                continue
            end = int(shown.document["max"])
            sought = await self.seek(self.random.randint(max(0, end - self.reach), end))
            if sought.outcome is Outcome.DONE and sought.offset < end and self.random.random() < 0.3:
                await self.acknowledge_up_to(end - 1)

    async def seek(self, offset: int) -> Seek:
        tried = await self.call("modifyOffset", {"offset": offset})
        return self.note(Seek(**tried.facts, subscription=self.subscription, offset=offset))
