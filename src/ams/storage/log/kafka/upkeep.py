"""What the log on Kafka does by itself: count bytes, look at topics, remove old keys, and log when Kafka is away."""

import contextlib
from functools import partial

import structlog

from ams.core.errors import Unavailable
from ams.core.supervisor import Rounds, Supervisor
from ams.storage.log.kafka.connection import Connection
from ams.storage.log.kafka.idempotency_store import PublishedBytes
from ams.storage.log.kafka.keys import Keys
from ams.storage.log.kafka.sender import Sender
from ams.storage.log.kafka.topics import Topics

logger = structlog.get_logger("ams.log")

TURN = 1.0
"""Seconds between two rounds: how much of the bytes published may be lost with a process."""
LIST_EVERY = 5
"""Rounds between looks at which topics there are: those that others deleted are noticed."""
LIST_SHARE = 100
"""With very many topics they are looked at less often: for no more than one part in so many of the time."""
LOOK_EVERY = 60
"""Rounds between looks at the settings of topics."""
FORGET_EVERY = 300
"""Rounds after which old keys are forgotten: often, so that there are few, and a publish need not wait for many."""


class Upkeep:
    """Runs in the background from `start` to `close`."""

    def __init__(
        self,
        connection: Connection,
        keys: Keys,
        topics: Topics,
        sender: Sender,
        sizes: PublishedBytes,
        supervisor: Supervisor,
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._topics = topics
        self._sender = sender
        self._sizes = sizes
        self._supervisor = supervisor
        self._was_away = False
        self._number = 0
        self._rounds = Rounds("upkeep of the log", TURN, self._round, partial(logger.warning, "log.upkeep"))

    async def start(self) -> None:
        """Begin. That Kafka is away already is said by the start, which waits for it."""
        self._was_away = not self._connection.reachable
        await self._rounds.start(self._supervisor)

    async def close(self) -> None:
        """End, and add the last bytes to the idempotency store."""
        await self._rounds.close()
        await self._sizes.flush()

    async def _round(self) -> None:
        self._number += 1
        self._log_changes()
        with contextlib.suppress(Unavailable):  # what is away is said elsewhere
            await self._look_after(self._number)

    async def _look_after(self, number: int) -> None:
        await self._sizes.flush()
        if self._was_away:
            return
        if number % max(LIST_EVERY, round(self._topics.cost * LIST_SHARE)) == 0:
            await self._sender.identify()
            await self._topics.refresh()
        if number % LOOK_EVERY == 0:
            await self._topics.look()
        if number % FORGET_EVERY == 0:
            await self._keys.forget_old()

    def _log_changes(self) -> None:
        """Say when Kafka went and when it came back, once each."""
        is_away = not self._connection.reachable
        if is_away and not self._was_away:
            logger.error("kafka.away", reason=self._connection.trouble)
        if self._was_away and not is_away:
            logger.info("kafka.back")
        self._was_away = is_away
