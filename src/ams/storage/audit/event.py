"""Events of the audit log, which have the form of the API also in the file."""

import re
from datetime import datetime
from typing import Any

import msgspec

from ams.core.clock import Milliseconds, publish_time
from ams.core.names import new_uuid
from ams.wire.service import Line

DONE, REFUSED, FAILED = "done", "refused", "failed"  # carried out, refused (4xx), or not possible now (5xx)

LOGIN = "login"  # action of a login, by token or by certificate; only failed ones are recorded for tokens

MAX_CHARACTERS = 500  # of a text: most come from clients, and indexes limit their size
_TOKEN = re.compile(r"[0-9a-f]{40,}", re.IGNORECASE)


AuditEvent = Line  # one action, its actor, time and result; never holds a token, a payload or a secret


def sanitize(event: AuditEvent) -> AuditEvent:
    """Return the event with texts shortened, made valid Unicode, and stripped of tokens."""
    texts = {name: _TOKEN.sub("***", getattr(event, name)) for name in ("resource", "reason", "request")}
    texts |= {"actor": event.actor, "address": event.address}
    cut = {name: text[:MAX_CHARACTERS].encode("utf-8", "replace").decode() for name, text in texts.items()}
    return msgspec.structs.replace(event, **cut)


def result_of(code: int) -> str:
    """Return the result for an HTTP status."""
    if code < 400:
        return DONE
    return REFUSED if code < 500 else FAILED


def new_event(
    at: Milliseconds, service: str, action: str, resource: str, *, code: int = 200, **said: str
) -> AuditEvent:
    """Return an event with a new id, and the result of the status `code`; `said` are its other texts."""
    texts: dict[str, Any] = {"actor": "", "address": "", "result": result_of(code), **said}
    texts |= {"time": publish_time(at), "service": service, "action": action, "resource": resource}
    return AuditEvent(id=new_uuid(), code=code, **texts)


_MAX_ID_CHARACTERS, _MAX_TIMES = 36, 2**31 - 1  # of the columns of the table
_decode = msgspec.json.Decoder(Line).decode


def encode_event(event: AuditEvent) -> bytes:
    """Encode an event as a line of the file, with its newline."""
    return msgspec.json.encode(event) + b"\n"


def decode_event(line: bytes) -> AuditEvent:
    """Parse a line of the file. Raises `ValueError`, also for a line truncated by a crash."""
    event = _decode(line)
    moment(event.time)
    if len(event.id) > _MAX_ID_CHARACTERS or not 0 <= event.code < 1000 or not 0 < event.times <= _MAX_TIMES:
        raise ValueError("no line that was written here")
    return event


def moment(text: str) -> Milliseconds:
    """Parse a time of RFC 3339, or a date; UTC without an offset. Raises `ValueError`."""
    said = datetime.fromisoformat(text)
    if said.tzinfo is None:
        said = datetime.fromisoformat(text + ("+00:00" if "T" in text or " " in text else "T00:00:00+00:00"))
    return Milliseconds(round(said.timestamp() * 1000))
