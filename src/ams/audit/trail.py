"""Recording: what services tell the audit log."""

from typing import Protocol

from ams.audit.event import AuditEvent


class Trail(Protocol):
    """Where events are recorded."""

    async def record(self, event: AuditEvent) -> None:
        """Record an event: when this returns, its line is in the file. Never raises; what goes wrong is logged."""
        ...


class NoTrail:
    """A trail that leads nowhere, for what is not to be audited."""

    async def record(self, event: AuditEvent) -> None:
        """Forget the event."""
