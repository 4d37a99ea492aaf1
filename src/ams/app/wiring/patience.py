"""Waiting at a start for what is on other machines: it comes back by itself, so a start does not give up."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from ams.core.backoff import Backoff, Pauses
from ams.core.errors import Unavailable

T = TypeVar("T")
Tell = Callable[[str], None]
"""Is called with what a start waits for; an empty text when it does not wait any more."""

BACKOFF = Backoff(0.25, 5.0)
"""Seconds between two tries."""

logger = structlog.get_logger("ams")


async def patiently(what: str, attempt: Callable[[], Awaitable[T]], tell: Tell) -> T:
    """Return what `attempt` opens; while it raises `Unavailable`, try again.

    Each reason is logged once: of several brokers another one may be the last to be asked each time.
    """
    pauses, last = Pauses(BACKOFF), ""
    said: set[str] = set()
    while True:
        try:
            opened = await attempt()
            break
        except Unavailable as error:
            reason = str(error.__cause__ or error)
        if reason != last:
            tell(f"{what}: {reason}")
            last = reason
        if reason not in said:
            logger.warning("start.waiting", what=what, reason=reason)
            said.add(reason)
        await asyncio.sleep(pauses.next())
    if said:
        logger.info("start.going_on", what=what)
        tell("")
    return opened
