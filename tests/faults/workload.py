"""Who uses the service while it is killed: publishers, consumers and seekers, each with its habits.

Everyone decides by a random generator of its own, so a seed repeats the decisions (not the moments).
"""

import asyncio
import random
from dataclasses import dataclass

from tests.faults.attempts import Ack, Outcome, Publish, Pull, Seek
from tests.faults.history import History
from tests.faults.http_client import PROJECT, Client, Kind, Tried
from tests.faults.payload import held, keyed_message, message

BEYOND = 5
"""How far behind what it was given a consumer acknowledges when it does so wrongly."""
BULK = 100
"""Messages from which on a publish is aimed at as a large one."""
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
        """Publish one request and note it."""
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
class Consumer:
    """Pulls and acknowledges: all, a part, or nothing of what it was given; now and then more, which is refused."""

    client: Client
    history: History
    random: random.Random
    subscription: str
    pause: float = 0.01

    async def run(self) -> None:
        while self.client.goes_on:
            pulled = await self.pull(self.random.randint(1, 400), wait=self.random.random() < 0.2)
            if pulled.messages:
                await self._react(pulled)
            await asyncio.sleep(self.random.uniform(0, self.pause))

    async def pull(self, size: int, *, wait: bool = False) -> Pull:
        """Pull once and note it."""
        body = {"maxMessages": str(size), "returnImmediately": "false" if wait else "true"}
        tried = await self._call("pull", body)
        messages = tuple(held(each) for each in tried.document["receivedMessages"]) if tried.done else ()
        attempt = Pull(**tried.facts, subscription=self.subscription, messages=messages)
        self.history.add(attempt)
        return attempt

    async def acknowledge(self, last: int) -> Ack:
        """Acknowledge everything up to an id and note it."""
        return await _acknowledge(self.client, self.history, self.subscription, last, Kind.ACK)

    async def _react(self, pulled: Pull) -> None:
        mood = self.random.random()
        if mood < 0.6:
            await self.acknowledge(pulled.messages[-1].id)
        elif mood < 0.85:
            await self.acknowledge(self.random.choice(pulled.messages).id)
        elif mood < 0.88:
            last = pulled.messages[-1].id + BEYOND
            await _acknowledge(self.client, self.history, self.subscription, last, Kind.OTHER)

    async def _call(self, verb: str, body: object, kind: Kind = Kind.OTHER) -> Tried:
        path = f"/subscriptions/{self.subscription}:{verb}"
        return await self.client.attempt(self.client.next_request(), path, body, kind)


@dataclass(frozen=True)
class Seeker:
    """Moves a subscription back and forth, and acknowledges at times what was handed out before, which is refused."""

    client: Client
    history: History
    random: random.Random
    subscription: str
    pause: float = 0.3
    reach: int = 500

    async def run(self) -> None:
        while self.client.goes_on:
            await asyncio.sleep(self.random.uniform(0, self.pause))
            end = await self.end()
            if end is not None:
                sought = await self.seek(self.random.randint(max(0, end - self.reach), end))
                if sought.outcome is Outcome.DONE and sought.offset < end and self.random.random() < 0.3:
                    await _acknowledge(self.client, self.history, self.subscription, end - 1, Kind.OTHER)

    async def end(self) -> int | None:
        """Ask for the topic's end."""
        path = f"/subscriptions/{self.subscription}:offsets"
        tried = await self.client.attempt(self.client.next_request(), path, None, method="GET")
        return int(tried.document["max"]) if tried.done else None

    async def seek(self, offset: int) -> Seek:
        """Move once and note it."""
        path = f"/subscriptions/{self.subscription}:modifyOffset"
        tried = await self.client.attempt(self.client.next_request(), path, {"offset": offset})
        attempt = Seek(**tried.facts, subscription=self.subscription, offset=offset)
        self.history.add(attempt)
        return attempt


async def _acknowledge(client: Client, history: History, subscription: str, last: int, kind: Kind) -> Ack:
    body = {"ackIds": [f"{_PREFIX}/subscriptions/{subscription}:{last}"]}
    tried = await client.attempt(client.next_request(), f"/subscriptions/{subscription}:acknowledge", body, kind)
    attempt = Ack(**tried.facts, subscription=subscription, last=last)
    history.add(attempt)
    return attempt
