"""Errors of the client, named as in `ams.core.errors`; `Refused` is an error envelope of the service (contract 1.1).

No error text holds a token or quotes a request; it may name the endpoint.
"""

from collections.abc import Sequence

import msgspec


class ClientError(Exception):
    """Base class of all errors of the client."""

    retriable = False
    """True if the same call may succeed later."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Closed(ClientError):
    """The client is closed."""


class BadConnection(ClientError):
    """Invalid settings of a connection, from an option, a variable, a profile, or a file they name."""


class NoService(BadConnection):
    """No endpoint is set."""


class Unreachable(ClientError):
    """No answer: no connection, a certificate that is not trusted, or a timeout.

    If it was `sent`, a call that changes something may still have been carried out.
    """

    retriable = True

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
        """False if there was no connection; True if the request may have arrived."""


class Untrusted(Unreachable):
    """The server has no TLS, or no certificate of a trusted CA; nothing was sent."""

    retriable = False


class NotAms(Unreachable):
    """The answer is not from AMS: a proxy's page, or the wrong port."""

    retriable = False


class Unusable(Unreachable):
    """A CA file or client certificate cannot be used; nothing was sent."""

    retriable = False

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class Refused(ClientError):
    """The service refused the call; `code` and `status` are from its error envelope."""

    def __init__(self, message: str, code: int = 0, status: str = "", retry_after: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.retry_after = retry_after
        """`retry_after`: seconds to wait, from the service; empty without."""


class InvalidInput(Refused):
    """The call is invalid; also raised before sending for an invalid name."""


class TooLarge(InvalidInput):
    """A message or a body exceeds the limit; nothing was stored."""


class NotAuthenticated(Refused):
    """No token, an unknown one, or a user without any role here."""


class NotAllowed(Refused):
    """The user's roles or the access list do not allow this."""


class NotFound(Refused):
    """The resource does not exist."""


class AckTimeout(Refused):
    """An acknowledgement came after its deadline; the messages will be delivered again."""

    late: Sequence[str] = ()
    """Ack ids of a parallel subscription that came too late; the call worked for the others."""


class Conflict(Refused):
    """The resource's state does not allow this now."""


class AlreadyExists(Conflict):
    """The name is taken."""


class ChangedMeanwhile(Conflict):
    """The resource changed since it was read; nothing was done."""


class Unavailable(Refused):
    """The service cannot do this now; retry."""

    retriable = True


class Overloaded(Unavailable):
    """The service sheds load; retry later."""


_BY_CODE: dict[int, type[Refused]] = {
    400: InvalidInput, 401: NotAuthenticated, 403: NotAllowed, 404: NotFound, 408: AckTimeout, 409: Conflict,
    412: ChangedMeanwhile, 413: TooLarge, 429: Overloaded, 503: Overloaded,
}  # fmt: skip


class _Detail(msgspec.Struct):
    code: int
    message: str
    status: str = ""


class _Envelope(msgspec.Struct):
    error: _Detail


def refusal(http_status: int, body: bytes, retry_after: str = "") -> Refused | NotAms:
    """Return the error of an answer that is not a success.

    Without the envelope the answer is not from AMS. But 429 and 500 and above also come from proxies, and mean the
    same there.
    """
    try:
        detail = msgspec.json.decode(body, type=_Envelope).error
    except msgspec.DecodeError:
        text = f"answer {http_status} without an AMS error"
        if http_status < 500 and http_status != 429:
            return NotAms(f"{text}: no AMS is there, or one that does not know this call")
        detail = _Detail(http_status, text)
    kind = _BY_CODE.get(http_status, Unavailable if http_status >= 500 else Refused)
    if kind is Conflict and detail.status == "ALREADY_EXISTS":
        kind = AlreadyExists
    return kind(detail.message, detail.code, detail.status, retry_after)
