"""How an event looks outside: a line of the file, and an item of the list that the API answers."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from ams.core.clock import Milliseconds, publish_time
from ams.storage.audit.event import AuditEvent


class Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An event of the audit log, as JSON."""

    time: str
    """RFC 3339, UTC."""
    id: str
    service: str
    action: str
    resource: str
    actor: str
    address: str
    code: int
    result: str
    reason: str = ""
    request: str = ""
    times: int = 1


class Lines(msgspec.Struct):
    """Events, newest first."""

    events: Sequence[Line]
    nextPageToken: str  # noqa: N815 - as lists say it (contract 4)


_LONGEST_ID, _MOST_TIMES = 36, 2**31 - 1
"""What the columns of the table hold."""
_decode = msgspec.json.Decoder(Line).decode


def shown(event: AuditEvent) -> Line:
    """Return an event as it is shown."""
    return Line(
        time=publish_time(event.at),
        id=event.id,
        service=event.service,
        action=event.action,
        resource=event.resource,
        actor=event.actor,
        address=event.address,
        code=event.code,
        result=event.result,
        reason=event.reason,
        request=event.request,
        times=event.times,
    )


def written(event: AuditEvent) -> bytes:
    """Return an event as a line of the file, with its end."""
    return msgspec.json.encode(shown(event)) + b"\n"


def read(line: bytes) -> AuditEvent:
    """Read a line of the file; raise `ValueError` for what is none, as one that a crash cut short."""
    said = _decode(line)
    if len(said.id) > _LONGEST_ID or not 0 <= said.code < 1000 or not 0 < said.times <= _MOST_TIMES:
        raise ValueError("no line that was written here")
    values = msgspec.structs.asdict(said)
    del values["time"]
    return AuditEvent(at=moment(said.time), **values)


def moment(text: str) -> Milliseconds:
    """Read a time of RFC 3339, or a date, as UTC unless it says otherwise; raise `ValueError` for what is none."""
    said = datetime.fromisoformat(text)
    if said.tzinfo is None:
        said = datetime.fromisoformat(text + ("+00:00" if "T" in text or " " in text else "T00:00:00+00:00"))
    return Milliseconds(round(said.timestamp() * 1000))
