"""One line of the audit log."""

import re
from dataclasses import dataclass, replace

from ams.core.clock import Milliseconds

DONE, REFUSED, FAILED = "done", "refused", "failed"
"""How it ended: carried out, refused to whoever asked (4xx), or not possible now (5xx)."""

LOGIN = "login"
"""The action of a login, by token or by certificate; only failed ones are recorded for tokens."""

LONGEST = 500
"""Characters that are kept of a text: clients write most of them, and no index takes one without end."""
_TOKEN = re.compile(r"[0-9a-f]{40,}", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """Who did what, from where, when, and how it ended. Never holds a token, a payload or a secret."""

    id: str
    """A UUID: a line of the file and a row of the table that have one id are one event."""
    at: Milliseconds
    service: str
    """`ams` or `authn`."""
    action: str
    """Of the table of permissions (`topics:create`), or one of the certificate service's (`bindings:update`)."""
    resource: str
    """Path below `/v1`, as it may be logged: never with a token."""
    actor: str
    """Name of the user, or of the key; the normal form of a certificate's subject; empty for nobody known."""
    address: str
    """Where the request came from: an IP address, that of the client where a trusted proxy tells it."""
    code: int
    """HTTP status of the answer."""
    result: str
    """`done`, `refused` or `failed`."""
    reason: str = ""
    """The text of the error that was answered; when it is done, how the actor logged in if not with its own token."""
    request: str = ""
    """Id of the request, as in `X-Request-Id`."""
    times: int = 1
    """How many attempts this line stands for: failed logins from one address beyond its limit are put together."""


def result_of(code: int) -> str:
    """Return how a request ended that was answered with this status."""
    if code < 400:
        return DONE
    return REFUSED if code < 500 else FAILED


def fitting(event: AuditEvent) -> AuditEvent:
    """Return an event as it may be kept: no text without end, none that cannot be written, nothing like a token."""
    return replace(
        event,
        resource=_fitting(_TOKEN.sub("***", event.resource)),
        actor=_fitting(event.actor),
        address=_fitting(event.address),
        reason=_fitting(_TOKEN.sub("***", event.reason)),
        request=_fitting(_TOKEN.sub("***", event.request)),
    )


def _fitting(text: str) -> str:
    return text[:LONGEST].encode("utf-8", "replace").decode()
