"""Leftovers: work of a change that the registry has stored, but another engine could not complete.

An error would tell the client that nothing has changed (contract 16), and a repeated deletion would get a 404. So the
change succeeds, and the rest waits. A single process cleans up at its next start; on a cluster `ams doctor` names it.
`Retention` retries by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import TypeVar

import structlog

from ams.core.errors import Damaged, Unavailable

K = TypeVar("K")
T = TypeVar("T")
logger = structlog.get_logger("ams")


async def run_in_parts(work: Callable[[K], Awaitable[object]], items: Iterable[K], at_once: int) -> None:
    """Run work for all items, some at once; raise the first error when all have ended."""
    remaining, failed = iter(items), []
    while part := list(islice(remaining, at_once)):
        outcomes = await asyncio.gather(*map(work, part), return_exceptions=True)
        failed += [each for each in outcomes if isinstance(each, BaseException)]
    if failed:
        raise failed[0]


async def drop_or_leave(drop: Callable[[K], Awaitable[None]], identity: K) -> None:
    """Drop a log or cursor that the registry has deleted; on failure log it as a leftover."""
    await finish_or_leave(drop(identity), identity.hex() if isinstance(identity, bytes) else str(identity))


async def finish_or_leave(rest: Awaitable[T], what: str) -> T | None:
    """Complete a change that the registry has stored; on failure return None, and log `what` is left."""
    try:
        return await rest
    except (Unavailable, Damaged) as error:
        logger.warning("leftover", id=what, reason=str(error))
        return None
