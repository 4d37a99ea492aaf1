"""Events of the audit log, as values and as JSON for the file and the API."""

import re
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row

from ams.core.clock import Milliseconds, publish_time
from ams.core.names import new_uuid
from ams.wire.service import Line

DONE, REFUSED, FAILED = "done", "refused", "failed"  # carried out, refused (4xx), or not possible now (5xx)

LOGIN = "login"  # action of a login, by token or by certificate; only failed ones are recorded for tokens

MAX_CHARACTERS = 500  # of a text: most come from clients, and indexes limit their size
_TOKEN = re.compile(r"[0-9a-f]{40,}", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One action: actor, address, time and result. Never holds a token, a payload or a secret."""

    id: str  # UUID, the same in the file and the table
    at: Milliseconds
    service: str  # `ams` or `authn`
    action: str  # of the table of permissions, or of the certificate service (`bindings:update`)
    resource: str  # path below `/v1`, never with a token
    actor: str  # name of user or key, or normal form of a certificate's subject; empty: unknown
    address: str  # of the client, or IP:PORT of a trusted proxy's connection for one client
    code: int  # HTTP status
    result: str
    reason: str = ""  # error text; if done, how the actor logged in, unless with its own token
    request: str = ""
    times: int = 1  # requests that this event stands for: repeated refusals in a minute are aggregated

    def sanitized(self) -> "AuditEvent":
        """Return the event with texts shortened, made valid Unicode, and stripped of tokens."""
        texts = {name: _TOKEN.sub("***", getattr(self, name)) for name in ("resource", "reason", "request")}
        texts |= {"actor": self.actor, "address": self.address}
        cut = {name: text[:MAX_CHARACTERS].encode("utf-8", "replace").decode() for name, text in texts.items()}
        return replace(self, **cut)  # type: ignore[arg-type]  # all of them are texts


FIELDS = tuple(each.name for each in fields(AuditEvent))


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
    return AuditEvent(id=new_uuid(), at=at, service=service, action=action, resource=resource, code=code, **texts)


_MAX_ID_CHARACTERS, _MAX_TIMES = 36, 2**31 - 1  # of the columns of the table
_decode = msgspec.json.Decoder(Line).decode


def wire_line(event: AuditEvent | Row[Any]) -> Line:
    """Return an event, or its row in a table, as an object of the wire format."""
    same = {name: getattr(event, name) for name in FIELDS if name != "at"}
    return Line(time=publish_time(event.at), **same)


def encode_event(event: AuditEvent) -> bytes:
    """Encode an event as a line of the file, with its newline."""
    return msgspec.json.encode(wire_line(event)) + b"\n"


def decode_event(line: bytes) -> AuditEvent:
    """Parse a line of the file. Raises `ValueError`, also for a line truncated by a crash."""
    said = _decode(line)
    if len(said.id) > _MAX_ID_CHARACTERS or not 0 <= said.code < 1000 or not 0 < said.times <= _MAX_TIMES:
        raise ValueError("no line that was written here")
    values = msgspec.structs.asdict(said)
    del values["time"]
    return AuditEvent(at=moment(said.time), **values)


def moment(text: str) -> Milliseconds:
    """Parse a time of RFC 3339, or a date; UTC without an offset. Raises `ValueError`."""
    said = datetime.fromisoformat(text)
    if said.tzinfo is None:
        said = datetime.fromisoformat(text + ("+00:00" if "T" in text or " " in text else "T00:00:00+00:00"))
    return Milliseconds(round(said.timestamp() * 1000))
