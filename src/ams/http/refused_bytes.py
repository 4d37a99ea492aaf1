"""Refused bytes: a project whose large bodies are refused again and again sends its next ones at a bounded rate.

A refused body is received, decoded and looked at as one that is stored. But it waits for no disk and counts for no
quota, so its sender would only be bounded by what the service can do. Refused bytes are a debt instead, which time
pays. While it is large, the next large bodies of the project wait, one behind the other, before they are read. Nobody
else waits.
"""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass

import structlog

from ams.core.errors import Overloaded

PACED_BYTES = 16 * 1024  # bodies up to this size never wait and are not counted: they cost what any request costs
REFUSED_BYTES_PER_SECOND = 4 * 2**20  # of debt that time pays: some 2 % of a processor, of refused schemas of 240 kB
FREE_REFUSED_BYTES = 16 * 2**20  # of debt with which nothing waits: the largest body may be sent again, mended
LONGEST_WAIT_SECONDS = 30.0
REPORT_SECONDS = 60.0  # between two lines of the log about one sender
_UNKNOWN_BYTES = 64 * 1024  # what a body counts for, while it waits, that does not say its length
_FEWEST = 1024  # debts that are kept without looking for those that are paid

logger = structlog.get_logger("ams.http")


@dataclass(slots=True)
class _Debt:
    """Times of the event loop's clock."""

    paid_at: float
    next_at: float = 0.0  # when a body may be read that comes behind those that wait
    next_report_at: float = 0.0


class RefusedBytes:
    """Debts by who sent the bodies: a project, or a user where there is none. Used from one event loop."""

    def __init__(self) -> None:
        self._debts: dict[Hashable, _Debt] = {}
        self._most = _FEWEST

    def note(self, who: Hashable, size: int) -> None:
        """Count a body that was refused after it was read; of nobody none is counted."""
        if size <= PACED_BYTES or not who:
            return
        now = asyncio.get_running_loop().time()
        debt = self._debts.get(who)
        if debt is None:
            debt = self._debts[who] = _Debt(now)
        debt.paid_at = max(debt.paid_at, now) + size / REFUSED_BYTES_PER_SECOND
        if len(self._debts) > self._most:
            self._debts = {each: debt for each, debt in self._debts.items() if debt.paid_at > now}
            self._most = max(2 * len(self._debts), _FEWEST)

    def must_wait(self, who: Hashable) -> bool:
        """Return whether a large body would have to wait now."""
        debt = self._debts.get(who)
        return debt is not None and _free_at(debt) > asyncio.get_running_loop().time()

    async def wait(self, who: Hashable, size: int | None) -> None:
        """Return when a body of so many bytes may be read, at once without a large debt. None: its size is not known.

        Raises `Overloaded` after `LONGEST_WAIT_SECONDS`, when that is not enough.
        """
        if not self.must_wait(who):
            return
        debt, now = self._debts[who], asyncio.get_running_loop().time()
        begins = max(_free_at(debt), debt.next_at)
        if now >= debt.next_report_at:
            debt.next_report_at = now + REPORT_SECONDS
            logger.warning("bodies.waiting", of=str(who), reason="too many large bodies of it were refused")
        if begins - now > LONGEST_WAIT_SECONDS:  # refused at once, it would be sent again at once
            await asyncio.sleep(LONGEST_WAIT_SECONDS)
            raise Overloaded("Too many large requests at once")
        debt.next_at = begins + (_UNKNOWN_BYTES if size is None else size) / REFUSED_BYTES_PER_SECOND
        await asyncio.sleep(begins - now)


def _free_at(debt: _Debt) -> float:
    """Return when so much of a debt is paid that nothing has to wait for it."""
    return debt.paid_at - FREE_REFUSED_BYTES / REFUSED_BYTES_PER_SECOND
