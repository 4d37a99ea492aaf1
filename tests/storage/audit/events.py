"""Events for tests, and their rows in a database."""

from collections.abc import Sequence
from itertools import count

from ams.core.clock import publish_time
from ams.storage.audit.event import AuditEvent
from ams.storage.audit.records import AuditRecords, EventFilter

NOON = 1_700_000_000_000
_numbers = count(1)


def event(at: int = 0, **said: object) -> AuditEvent:
    values: dict[str, object] = {
        "id": f"00000000-0000-4000-8000-{next(_numbers):012}", "time": publish_time(NOON + at), "service": "ams",
        "action": "topics:create", "resource": "/projects/P/topics/t", "actor": "anna", "address": "192.0.2.7",
        "code": 200, "result": "done",
    }  # fmt: skip
    return AuditEvent(**(values | said))  # type: ignore[arg-type]  # tests name fields freely


async def list_events(records: AuditRecords) -> Sequence[AuditEvent]:
    return (await records.list(EventFilter(), size=1000)).events
