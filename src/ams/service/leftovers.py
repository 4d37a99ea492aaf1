"""Leftovers: what a change leaves undone when the registry has stored it, and another engine cannot follow now.

An error after that would say that nothing has changed (contract 16), and a repeated deletion would be answered 404. So
the change is answered as done, and what is left waits: a service that is alone sweeps it at its next start, and where
there are others `ams doctor` names it. `Retention` tries again by itself.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from ams.core.errors import Damaged, Unavailable

K = TypeVar("K")
T = TypeVar("T")

logger = structlog.get_logger("ams")


async def drop_or_leave(drop: Callable[[K], Awaitable[None]], identity: K) -> None:
    """Drop what the registry has forgotten, or leave it and say so in the log."""
    await finish_or_leave(drop(identity), identity.hex() if isinstance(identity, bytes) else str(identity))


async def finish_or_leave(rest: Awaitable[T], what: str) -> T | None:
    """Do the rest of a change that the registry has stored; return None, and log `what` it is about, if it fails."""
    try:
        return await rest
    except (Unavailable, Damaged) as error:
        logger.warning("leftover", id=what, reason=str(error))
        return None
