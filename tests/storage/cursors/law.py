"""Clients of one subscription that record requests and answers, to check the law of cursors."""

import random
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from ams.core.errors import AmsError, CursorsUnavailable
from ams.core.names import SubscriptionId
from ams.storage.cursors.base import Cursors
from simulation.histories import cursor_law
from simulation.histories.attempts import Ack, Facts, Held, Outcome, Publish, Pull, Seek

T = TypeVar("T")

SUB = "sub-1"
TOPIC = b"t" * 16
DEADLINE = 60_000
MESSAGES = 100_000  # messages that the topic claims to have; no test reaches its end
BATCH = 20


@dataclass
class Trial:
    """Requests of clients of one subscription on any store, and the answers."""

    subscription: SubscriptionId = SUB
    uses: list[cursor_law.Use] = field(default_factory=list)
    numbers: "count[int]" = field(default_factory=count)

    async def act(self, cursors: Cursors, chance: random.Random, *, seeks: bool = True) -> None:
        """Pull and acknowledge some of it; sometimes seek back."""
        if seeks and chance.random() < 0.05:
            await self.seek(cursors, chance.randrange(100))
            return
        first = await self.pull(cursors)
        if first is not None and chance.random() < 0.9:
            await self.acknowledge(cursors, first + chance.randrange(BATCH))

    async def pull(self, cursors: Cursors) -> int | None:
        """Hand a batch out; return its first id, None without an answer."""

        async def pulling() -> int:
            while True:
                position = await cursors.position(self.subscription, TOPIC)
                if await cursors.hand_out(self.subscription, position.generation, position.offset + BATCH):
                    return position.offset

        facts, first = await self._try_call("pull", pulling())
        messages = () if first is None else tuple(Held(each, f"m{each}") for each in range(first, first + BATCH))
        self.uses.append(Pull(**facts, subscription=self.subscription, messages=messages))
        return first

    async def acknowledge(self, cursors: Cursors, last: int) -> Outcome:
        facts, _ = await self._try_call("ack", cursors.acknowledge(self.subscription, last, DEADLINE))
        self.uses.append(Ack(**facts, subscription=self.subscription, last=last))
        return facts["outcome"]

    async def seek(self, cursors: Cursors, offset: int) -> None:
        facts, _ = await self._try_call("seek", cursors.seek(self.subscription, TOPIC, offset))
        self.uses.append(Seek(**facts, subscription=self.subscription, offset=offset))

    async def violations(self, cursors: Cursors) -> Sequence[str]:
        """Check all requests, and the final cursor."""
        published = Facts(request="all", started=0.0, ended=0.0, outcome=Outcome.DONE)
        end = cursor_law.KnownEnd([Publish(**published, topic="t", names=(), ids=(MESSAGES - 1,))])
        final = (await cursors.position(self.subscription, TOPIC)).offset
        return list(cursor_law.violations(self.subscription, self.uses, end, final))

    def outcomes(self) -> set[Outcome]:
        return {use.outcome for use in self.uses}

    async def _try_call(self, what: str, call: Awaitable[T]) -> tuple[Facts, T | None]:
        started, answer = time.monotonic(), None
        try:
            answer, outcome = await call, Outcome.DONE
        except CursorsUnavailable:
            outcome = Outcome.UNKNOWN
        except AmsError:
            outcome = Outcome.REFUSED
        request = f"{what} {next(self.numbers)}"
        return Facts(request=request, started=started, ended=time.monotonic(), outcome=outcome), answer
