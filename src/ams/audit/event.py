"""One line of the audit log."""

from dataclasses import dataclass

from ams.clock import Milliseconds

DONE, REFUSED, FAILED = "done", "refused", "failed"
"""How it ended: carried out, refused to whoever asked (4xx), or not possible now (5xx)."""

LOGIN = "login"
"""The action of a login, by token or by certificate; only failed ones are recorded for tokens."""


LONGEST = {"resource": 500, "actor": 500, "address": 100, "reason": 1000, "request": 200}
"""Characters of the texts that clients have a say in. A certificate's subject may have 100 kB, and one text that no
index takes would keep all that comes after it from the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """Who did what, from where, when, and how it ended. Never holds a token, a payload or a secret.

    Texts longer than `LONGEST` are cut, and end with dots.
    """

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
    """The text of the error that was answered; empty when it is done."""
    request: str = ""
    """Id of the request, as in `X-Request-Id`."""
    times: int = 1
    """How many attempts this line stands for: failed logins from one address beyond its limit are put together."""

    def __post_init__(self) -> None:
        """Cut what is too long."""
        for name, most in LONGEST.items():
            text = getattr(self, name)
            if len(text) > most:
                object.__setattr__(self, name, text[: most - 3] + "...")


def result_of(code: int) -> str:
    """Return how a request ended that was answered with this status."""
    if code < 400:
        return DONE
    return REFUSED if code < 500 else FAILED
