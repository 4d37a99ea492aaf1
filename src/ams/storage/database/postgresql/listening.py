"""LISTEN for the changes of other nodes, so that caches may be used.

One connection listens. It is probed all the time: notifications sent before the answer to a probe have arrived with it,
so from the sending of an answered probe the caches are used for a second, and no longer. A connection that is lost, or
that transports nothing, thus ends the use of caches; the registry is then read each time until it is back.
"""

import asyncio
import contextlib
import time

import psycopg
import structlog
from psycopg.rows import TupleRow

from ams.core.backoff import Backoff, Pauses
from ams.storage.database.invalidation import Invalidation, Invalidations
from ams.storage.database.schema import Schema
from ams.storage.postgresql import connect, limited, reason

PROBE_SECONDS = 0.3
"""Between two probes."""
TRUST_SECONDS = 1.0
"""How long an answered probe is good for."""
SILENCE_SECONDS = 2.0
"""After this a connection is given up and made anew."""
BACKOFF = Backoff(0.1, 2.0)
"""Seconds between two tries to connect."""

logger = structlog.get_logger("ams.registry")


class Listener:
    """Applies what other nodes say is to be forgotten."""

    def __init__(self, to: str, schema: Schema, invalidations: Invalidations) -> None:
        self._to = to
        self._schema = schema
        self._invalidations = invalidations
        self._listening: asyncio.Task[None] | None = None
        self._pauses = Pauses(BACKOFF)
        invalidations.distrust()

    def start(self) -> None:
        """Begin; until it is connected, caches are not used."""
        self._listening = asyncio.create_task(self._keep_listening())

    async def close(self) -> None:
        """Hear no more."""
        if self._listening is None:
            return
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening
        self._listening = None

    async def _keep_listening(self) -> None:
        said = ""
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError) as error:
                if reason(error) != said:
                    said = reason(error)
                    logger.warning("registry.not_listening", reason=said)
            except Exception:  # a defect must not end the listening for good
                logger.exception("registry.not_listening")
            await asyncio.sleep(self._pauses.next())

    async def _listen(self) -> None:
        connection = await connect(self._to)
        try:
            with limited(connection, SILENCE_SECONDS):
                await connection.execute("SELECT pg_advisory_lock_shared(%s)", (self._schema.serving,))
                await connection.execute(f"LISTEN {self._schema.channel}")
            self._invalidations.forget_all()  # what was said before is not known
            logger.info("registry.listening")
            self._pauses.reset()
            while True:
                await self._probe(connection)
        finally:
            self._invalidations.distrust()
            await connection.close()

    async def _probe(self, connection: psycopg.AsyncConnection[TupleRow]) -> None:
        """Ask for an answer, then hear what is said until it is time for the next."""
        sent = time.monotonic()
        with limited(connection, SILENCE_SECONDS):
            await connection.execute("SELECT 1")
        self._invalidations.trust(sent + TRUST_SECONDS)
        # What came in with the answer is applied now, before anything else runs.
        async for said in connection.notifies(timeout=PROBE_SECONDS):
            self._apply(said.payload)

    def _apply(self, text: str) -> None:
        forget = Invalidation.read(text)
        if forget is None:
            self._invalidations.forget_all()
        else:
            self._invalidations.apply([forget])
