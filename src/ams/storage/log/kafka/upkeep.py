"""What the log on Kafka does by itself: count bytes, look at topics, remove old keys, and log when Kafka is away."""

import asyncio

import structlog

from ams.core.errors import AmsError, Unavailable
from ams.core.supervisor import Supervisor
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
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin. That Kafka is away already is said by the start, which waits for it."""
        self._was_away = not self._connection.reachable
        self._task = self._supervisor.task("upkeep of the log", self._run())

    async def close(self) -> None:
        """End, and add the last bytes to the idempotency store."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._sizes.flush()

    async def _run(self) -> None:
        number = 0
        while True:
            number += 1
            await asyncio.sleep(TURN)
            try:
                self._log_changes()
                await self._round(number)
            except Unavailable:  # what is away is said elsewhere
                continue
            except AmsError as error:
                logger.warning("log.upkeep", reason=str(error))
            except Exception:  # a defect must not end the upkeep for good
                self._supervisor.survive("upkeep of the log")

    async def _round(self, number: int) -> None:
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
