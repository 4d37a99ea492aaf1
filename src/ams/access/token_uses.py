"""When named tokens were last used: noted in memory, written now and then.

Nothing waits for it. After a crash the last minute may be missing; with several nodes the latest that any of them
wrote holds.
"""

import asyncio
import contextlib

import structlog

from ams.core.clock import Milliseconds
from ams.core.errors import AmsError
from ams.core.names import TokenId
from ams.core.supervisor import Supervisor
from ams.storage.registry.named_tokens import NamedTokenRecords

logger = structlog.get_logger("ams.token_uses")

ROUND_SECONDS = 60.0


class TokenUses:
    """Keeps when each named token was last used."""

    def __init__(self, tokens: NamedTokenRecords) -> None:
        self._tokens = tokens
        self._noted: dict[TokenId, Milliseconds] = {}
        self._task: asyncio.Task[None] | None = None
        self._supervisor = Supervisor()

    def note(self, token: TokenId, now: Milliseconds) -> None:
        """Note a use; on the way of every request, so it does nothing else."""
        self._noted[token] = now

    async def start(self, supervisor: Supervisor | None = None) -> None:
        """Write what is noted about each minute, until `close`."""
        self._supervisor = supervisor or self._supervisor
        self._task = self._supervisor.task("uses of tokens", self._run())

    async def close(self) -> None:
        """Write what is noted, and no more from then on."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._try_flush()

    async def flush(self) -> None:
        """Write what is noted. Raises what the registry raises; it is written the next time then."""
        noted, self._noted = self._noted, {}
        try:
            await self._tokens.note_uses(noted)
        except BaseException:
            self._noted = {**noted, **self._noted}
            raise

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            await self._try_flush()

    async def _try_flush(self) -> None:
        try:
            await self.flush()
        except AmsError as error:
            logger.warning("token_uses.put_off", reason=str(error))
        except Exception:  # a defect must not end the noting for good
            self._supervisor.survive("uses of tokens")
