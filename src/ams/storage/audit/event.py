"""One event of the audit log: as a value, as a line of the file, and as an item of the list that the API answers."""

import re
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

import msgspec

from ams.core.clock import Milliseconds, publish_time
from ams.core.names import new_uuid
from ams.wire.service import Line

DONE, REFUSED, FAILED = "done", "refused", "failed"  # carried out, refused (4xx), or not possible now (5xx)

LOGIN = "login"  # action of a login, by token or by certificate; only failed ones are recorded for tokens

MAX_CHARACTERS = 500  # of a text: clients write most of them, and no index takes one without end
_TOKEN = re.compile(r"[0-9a-f]{40,}", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One action: actor, address, time and result. Never holds a token, a payload or a secret."""

    id: str  # a UUID: a line of the file and a row of the table that have one id are one event
    at: Milliseconds
    service: str  # `ams` or `authn`
    action: str  # of the table of permissions, or the certificate service's (`bindings:update`)
    resource: str  # path below `/v1`, never with a token
    actor: str  # name of the user or key; the normal form of a certificate's subject; empty: not known
    address: str  # of the client, or IP address and port of a trusted proxy's connection that is one client's
    code: int  # HTTP status
    result: str
    reason: str = ""  # the text of the error; when done, how the actor logged in if not with its own token
    request: str = ""
    times: int = 1  # requests: those beyond the first few refusals of a user or an address in a minute are put together


FIELDS = tuple(each.name for each in fields(AuditEvent))


def result_of(code: int) -> str:
    """Return how a request ended that was answered with this status."""
    if code < 400:
        return DONE
    return REFUSED if code < 500 else FAILED


def new_event(
    at: Milliseconds, service: str, action: str, resource: str, *, code: int = 200, **said: str
) -> AuditEvent:
    """Return an event with a new id and the result that the status says; `said` are its other texts, if not empty."""
    texts: dict[str, Any] = {"actor": "", "address": "", "result": result_of(code), **said}
    return AuditEvent(id=new_uuid(), at=at, service=service, action=action, resource=resource, code=code, **texts)


def fitting(event: AuditEvent) -> AuditEvent:
    """Return an event as it may be kept: each text short and valid, and without tokens."""
    texts = {name: _TOKEN.sub("***", getattr(event, name)) for name in ("resource", "reason", "request")}
    texts |= {"actor": event.actor, "address": event.address}
    cut = {name: text[:MAX_CHARACTERS].encode("utf-8", "replace").decode() for name, text in texts.items()}
    return replace(event, **cut)  # type: ignore[arg-type]  # all of them are texts


_MAX_ID_CHARACTERS, _MAX_TIMES = 36, 2**31 - 1  # of the columns of the table
_decode = msgspec.json.Decoder(Line).decode


def shown(event: AuditEvent) -> Line:
    """Return an event as it is shown."""
    same = {name: getattr(event, name) for name in FIELDS if name != "at"}
    return Line(time=publish_time(event.at), **same)


def written(event: AuditEvent) -> bytes:
    """Return an event as a line of the file, with its end."""
    return msgspec.json.encode(shown(event)) + b"\n"


def read(line: bytes) -> AuditEvent:
    """Read a line of the file; raise `ValueError` for any other, as one that a crash cut short."""
    said = _decode(line)
    if len(said.id) > _MAX_ID_CHARACTERS or not 0 <= said.code < 1000 or not 0 < said.times <= _MAX_TIMES:
        raise ValueError("no line that was written here")
    values = msgspec.structs.asdict(said)
    del values["time"]
    return AuditEvent(at=moment(said.time), **values)


def moment(text: str) -> Milliseconds:
    """Read a time of RFC 3339, or a date, as UTC unless it says otherwise. Raises `ValueError`."""
    said = datetime.fromisoformat(text)
    if said.tzinfo is None:
        said = datetime.fromisoformat(text + ("+00:00" if "T" in text or " " in text else "T00:00:00+00:00"))
    return Milliseconds(round(said.timestamp() * 1000))
