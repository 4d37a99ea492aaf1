"""Failed logins: counted, held to a limit, and recorded so that they cannot fill the audit log.

The first few of an address in a minute are an event each; the others of that minute are one event, which says how many
they were, when the minute is over.
"""

from dataclasses import dataclass, replace

from ams.core.attempts import Attempts
from ams.core.clock import Clock
from ams.core.names import new_uuid
from ams.core.supervisor import Rounds, Supervisor
from ams.storage.audit.event import LOGIN, AuditEvent, result_of
from ams.storage.audit.trail import Trail

EACH = 10
"""Failed logins of an address in a minute that are events of their own."""
MINUTE = 60_000
"""Milliseconds."""
ADDRESSES = 1000
"""Addresses of a minute with events of their own; the failures of all others are one event without an address."""
OTHERS = ""


@dataclass(slots=True)
class _Minute:
    """What an address did within a minute."""

    failures: int = 0
    more: AuditEvent | None = None
    """Stands for those beyond the first few."""


class FailedLogins:
    """Records logins that failed, of one service. `attempts` has the limit, and counts."""

    def __init__(self, service: str, trail: Trail, attempts: Attempts, clock: Clock) -> None:
        self._service = service
        self._trail = trail
        self._clock = clock
        self._began = clock.monotonic()
        self._addresses: dict[str, _Minute] = {}
        self._rounds = Rounds("failed logins", MINUTE / 1000, self._flush_if_over)
        self.attempts = attempts

    @property
    def failures(self) -> int:
        """All there were since the start."""
        return self.attempts.failures

    async def start(self, supervisor: Supervisor) -> None:
        """Record what was put together also when no other login fails."""
        await self._rounds.start(supervisor)

    async def close(self) -> None:
        """Record what was put together so far."""
        await self._rounds.close()
        await self.flush()

    async def failed(
        self, address: str, *, code: int, reason: str, resource: str, actor: str = "", request: str = ""
    ) -> None:
        """Count a login that failed and record it, now or with others. `actor` is who it claimed to be, if it did."""
        self.attempts.failed(address)
        await self.refused(address, code=code, reason=reason, resource=resource, actor=actor, request=request)

    async def refused(
        self, address: str, *, code: int, reason: str, resource: str, actor: str = "", request: str = ""
    ) -> None:
        """Record one that was refused for the limit, which does not count against the address again."""
        await self._flush_if_over()
        known = address in self._addresses or len(self._addresses) < ADDRESSES
        where = address if known else OTHERS
        minute = self._addresses.setdefault(where, _Minute())
        minute.failures += 1
        event = AuditEvent(
            id=new_uuid(), at=self._clock.wall(), service=self._service, action=LOGIN, resource=resource,
            actor=actor, address=where, code=code, result=result_of(code), reason=reason, request=request,
        )  # fmt: skip
        if minute.failures <= EACH and known:
            await self._trail.record(event)
        else:
            minute.more = _with(minute.more, event)

    async def flush(self) -> None:
        """Record what was put together, and begin a new minute."""
        self._began = self._clock.monotonic()
        minutes, self._addresses = self._addresses, {}
        for minute in minutes.values():
            if minute.more is not None:
                await self._trail.record(minute.more)

    async def _flush_if_over(self) -> None:
        if self._clock.monotonic() - self._began >= MINUTE:
            await self.flush()


def _with(more: AuditEvent | None, event: AuditEvent) -> AuditEvent:
    """Count one more. Who was claimed stays only while all claimed the same; the rest is that of the last."""
    if more is None:
        return event
    return replace(event, times=more.times + 1, actor=event.actor if event.actor == more.actor else "")
