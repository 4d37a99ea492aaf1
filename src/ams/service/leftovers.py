"""Leftovers: what the registry has forgotten, and the log or the cursors cannot drop now.

What was deleted is gone for everybody once the registry has forgotten it. An error after that would say that nothing
has changed (contract 16), and a repeated request would be answered 404. So what is left waits: a service that is alone
sweeps it at its next start, and where there are others `ams doctor` names it.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from ams.core.errors import Unavailable

K = TypeVar("K")

logger = structlog.get_logger("ams")


async def drop_or_leave(drop: Callable[[K], Awaitable[None]], identity: K) -> None:
    """Drop what the registry has forgotten, or leave it and say so in the log."""
    try:
        await drop(identity)
    except Unavailable as error:
        shown = identity.hex() if isinstance(identity, bytes) else str(identity)
        logger.warning("leftover", id=shown, reason=str(error))
