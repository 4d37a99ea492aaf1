"""Errors of the client, with the class names of `ams.core.errors`; `Refused` is what the service says (contract 1.1).

No text of these holds a token: neither requests nor their addresses are quoted, but for the endpoint.
"""

from collections.abc import Sequence

import msgspec


class ClientError(Exception):
    """The root of everything the client raises on purpose."""

    retriable = False
    """True if the same call may succeed later without being changed."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Closed(ClientError):
    """The client was closed, so that it can no longer be asked."""


class BadConnection(ClientError):
    """What was said of a connection cannot be: by an option, a variable, a profile, or a file they name."""


class NoService(BadConnection):
    """No place says which service to talk to."""


class Unreachable(ClientError):
    """No answer: no connection, a certificate that is not trusted, or a timeout.

    A call that changes something may have been carried out all the same, unless it was never `sent`.
    """

    retriable = True

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent
        """True if the request may have arrived; False when there was no connection to send it over."""


class Untrusted(Unreachable):
    """There is no TLS there, or its certificate is not signed by a trusted CA; nothing was sent."""

    retriable = False


class NotAms(Unreachable):
    """Something answered that does not speak AMS: a proxy's page, or the wrong port."""

    retriable = False


class Unusable(Unreachable):
    """A file of CA certificates, or of the certificate to show, cannot be used; nothing was sent."""

    retriable = False

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class Refused(ClientError):
    """The service said no; `code` and `status` are those of its error envelope."""

    def __init__(self, message: str, code: int = 0, status: str = "", retry_after: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.retry_after = retry_after
        """Seconds to wait as the service asked for them; empty when it did not."""


class InvalidInput(Refused):
    """The call says something that cannot be; also raised before sending when a name cannot be one."""


class TooLarge(InvalidInput):
    """A message or a body is over the limit; nothing was stored."""


class NotAuthenticated(Refused):
    """No token, an unknown one, or a user without any role here."""


class NotAllowed(Refused):
    """A known user whose roles or absence from an access list do not allow this."""


class NotFound(Refused):
    """The resource does not exist."""


class AckTimeout(Refused):
    """An acknowledgement came after its deadline; the messages will be delivered again."""

    late: Sequence[str] = ()
    """Of a parallel subscription: the ack ids that came too late; what was asked for the others was done."""


class Conflict(Refused):
    """The state of the resource does not allow this now."""


class AlreadyExists(Conflict):
    """The name is taken."""


class ChangedMeanwhile(Conflict):
    """What was to be changed is not any more as it was read; nothing was done."""


class Unavailable(Refused):
    """The service cannot do its work now; nothing was promised, trying again is right."""

    retriable = True


class Overloaded(Unavailable):
    """The service refuses work to protect what it has; try again later."""


_BY_CODE: dict[int, type[Refused]] = {
    400: InvalidInput,
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    408: AckTimeout,
    409: Conflict,
    412: ChangedMeanwhile,
    413: TooLarge,
    429: Overloaded,
    503: Overloaded,
}


class _Detail(msgspec.Struct):
    code: int
    message: str
    status: str = ""


class _Envelope(msgspec.Struct):
    error: _Detail


def refusal(http_status: int, body: bytes, retry_after: str = "") -> Refused | NotAms:
    """Read an answer that is not a success into its error.

    A status of 400 and above without the envelope is that of something else; but 429 and 500 and above also come from
    proxies in front of the service, and say the same there.
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
