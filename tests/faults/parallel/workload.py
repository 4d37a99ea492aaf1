"""Consumers of parallel subscriptions, each with its habits: they acknowledge, fail, dawdle, and forget."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.attempts import Outcome
from tests.faults.history import History
from tests.faults.http_client import LATE, Client, Kind
from tests.faults.parallel.attempts import ACK, EXTEND, NACK, Lease, Leased, Settle
from tests.faults.parallel.laws import Parallel
from tests.faults.payload import is_poisoned, name_of
from tests.faults.workload import User

MOST = 60
"""Messages of a pull; no more than an error names ids of."""
SHORT = 1
"""Seconds to which a lease is cut when its messages are forgotten."""


@dataclass(frozen=True)
class Worker(User):
    """Works on one parallel subscription; messages that are poisoned fail always."""

    pause: float = 0.01
    settled: list[str] = field(default_factory=list)
    """Some of the ids that were acknowledged, to acknowledge again."""

    async def run(self) -> None:
        while self.client.goes_on:
            leased = await self.pull(self.random.randint(1, MOST), wait=self.random.random() < 0.2)
            if leased.messages:
                await self._handle(leased.messages)
            await asyncio.sleep(self.random.uniform(0, self.pause))

    async def work(self) -> int:
        """Handle once what there is, without whims; return how many messages that was."""
        leased = await self.pull(MOST)
        await self._settle_all(leased.messages)
        return len(leased.messages)

    async def pull(self, most: int, *, wait: bool = False) -> Lease:
        body = {"maxMessages": str(most), "returnImmediately": "false" if wait else "true"}
        tried = await self.call("pull", body)
        messages = tuple(_leased(each) for each in tried.document["receivedMessages"]) if tried.done else ()
        return self.note(Lease(**tried.facts, subscription=self.subscription, messages=messages))

    async def acknowledge(self, ids: Sequence[str]) -> Settle:
        return await self._settle(ACK, ids)

    async def nack(self, ids: Sequence[str], seconds: int | None = None) -> Settle:
        """Give messages back and note it; they come again after so many seconds, None: as the retry policy says."""
        return await self._settle(NACK, ids, **({} if seconds is None else {"delaySeconds": seconds}))

    async def extend(self, ids: Sequence[str], seconds: int) -> Settle:
        return await self._settle(EXTEND, ids, ackDeadlineSeconds=seconds)

    async def _handle(self, messages: Sequence[Leased]) -> None:
        mood = self.random.random()
        if mood < 0.7:
            await self._settle_all(messages)
        elif mood < 0.8:
            cut = self.random.randint(1, len(messages))
            await self._settle_all(messages[:cut])
            await self._give_back(messages[cut:])
        elif mood < 0.9:
            await self.extend(_ids(messages), 2)
            await asyncio.sleep(self.random.uniform(0, 0.5))
            await self._settle_all(messages)
        elif mood < 0.95:
            await self.extend(_ids(messages), SHORT)  # and these are forgotten
        else:
            await self._settle_all(messages)
            await self.acknowledge([*_ids(messages), *self.settled][:MOST])

    async def _settle_all(self, messages: Sequence[Leased]) -> None:
        """Acknowledge what can be handled, and give back what cannot."""
        good = [each.ack_id for each in messages if not is_poisoned(each.name)]
        if good:
            await self.acknowledge(good)
            self.settled[:] = good[:5]
        await self._give_back([each for each in messages if is_poisoned(each.name)])

    async def _give_back(self, messages: Sequence[Leased]) -> None:
        if messages and self.random.random() < 0.8:
            await self.nack(_ids(messages), self.random.choice((None, None, 0)))
        elif messages:
            await self.extend(_ids(messages), 0)

    async def _settle(self, verb: str, ids: Sequence[str], **more: int) -> Settle:
        tried = await self.call(verb, {"ackIds": list(ids), **more}, Kind.SETTLE)
        seconds = more.get("ackDeadlineSeconds", 0)
        facts, late = tried.facts, _late(tried.refusal, ids)
        if tried.refusal.startswith(LATE):
            facts["outcome"] = Outcome.DONE  # of the others
        noted = NACK if verb == EXTEND and not seconds else verb
        told = {"subscription": self.subscription, "verb": noted, "ids": tuple(ids), "late": late}
        return self.note(Settle(**facts, **told, seconds=seconds))


def workers_of(
    kinds: Sequence[Parallel],
    each: int,
    client: Callable[[str], Client],
    history: History,
    chance: random.Random,
    pause: float = Worker.pause,
) -> list[Worker]:
    """Make so many workers of each subscription; `client` makes who asks for one of them, by a name."""
    return [
        Worker(client(f"{kind.name}-w{number}"), history, random.Random(chance.random()), kind.name, pause)
        for kind in kinds
        for number in range(each)
    ]


def _leased(received: dict[str, Any]) -> Leased:
    offset, dash, _ = received["ackId"].rpartition(":")[2].partition("-")
    body = received["message"]
    name = name_of(body.get("attributes", {}), body["data"])
    if offset != body["messageId"] or not dash:
        name += f" (altered: acknowledged as {received['ackId']})"
    return Leased(int(body["messageId"]), name, received["ackId"])


def _ids(messages: Sequence[Leased]) -> list[str]:
    return [each.ack_id for each in messages]


def _late(refusal: str, ids: Sequence[str]) -> tuple[str, ...]:
    """Return which ids an error names."""
    said = refusal.partition(": ")[2].split(", ") if refusal.startswith(LATE) else []
    return tuple(each for each in ids if each.rpartition(":")[2] in said)
