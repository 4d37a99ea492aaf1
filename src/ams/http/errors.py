"""Errors on the wire: the table of status codes by error class, and the envelope of contract 1.1."""

import re
from typing import NamedTuple

import msgspec
from starlette.exceptions import HTTPException

from ams.core import errors
from ams.http.asgi import Header


class HttpStatus(NamedTuple):
    """HTTP status code, and its name in the envelope."""

    code: int
    word: str


STATUS: dict[type[errors.AmsError], HttpStatus] = {
    errors.InvalidInput: HttpStatus(400, "INVALID_ARGUMENT"),
    errors.BadRequest: HttpStatus(400, "BAD_REQUEST"),
    errors.NotAuthenticated: HttpStatus(401, "UNAUTHORIZED"),
    errors.NotAllowed: HttpStatus(403, "FORBIDDEN"),
    errors.NotFound: HttpStatus(404, "NOT_FOUND"),
    errors.NotAcceptable: HttpStatus(406, "NOT_ACCEPTABLE"),
    errors.AckTimeout: HttpStatus(408, "TIMEOUT"),
    errors.AlreadyExists: HttpStatus(409, "ALREADY_EXISTS"),
    errors.Conflict: HttpStatus(409, "CONFLICT"),
    errors.ChangedMeanwhile: HttpStatus(412, "FAILED_PRECONDITION"),
    errors.TooLarge: HttpStatus(413, "INVALID_ARGUMENT"),
    errors.UnknownCoding: HttpStatus(415, "INVALID_ARGUMENT"),
    errors.QuotaExceeded: HttpStatus(429, "RESOURCE_EXHAUSTED"),
    errors.RateLimited: HttpStatus(429, "RESOURCE_EXHAUSTED"),
    errors.Unavailable: HttpStatus(500, "INTERNAL_SERVER_ERROR"),
    errors.Damaged: HttpStatus(500, "INTERNAL_SERVER_ERROR"),
    errors.Unusable: HttpStatus(500, "INTERNAL_SERVER_ERROR"),
    errors.Overloaded: HttpStatus(503, "UNAVAILABLE"),
}
"""The nearest ancestor of an error counts. Source: contract, short forms; 406, 412, 415, 429, 503: ours."""

INTERNAL_ERROR = HttpStatus(500, "INTERNAL_SERVER_ERROR")
RETRY_AFTER_SECONDS = 2
RATE_SECONDS = 1  # Retry-After of a 429: every rate allows a request within a second


def status_of(kind: type[errors.AmsError]) -> HttpStatus:
    """Return the row of an error class or its nearest ancestor."""
    return next(STATUS[base] for base in kind.__mro__ if base in STATUS)


REALM = b'Bearer realm="ams"'
_BAD_TEXT = re.compile(r"[^ !#-\[\]-~]")  # not allowed in an `error_description` (RFC 6750, 3)


class Refusal(NamedTuple):
    """An error on the wire."""

    code: int
    body: bytes
    retry_after: int | None = None
    challenge: bytes = b""  # value of `WWW-Authenticate`; every 401 has one (RFC 9110, 15.5.2)

    @property
    def headers(self) -> list[Header]:
        """Header fields other than content type and length."""
        found = []
        if self.retry_after is not None:
            found.append((b"retry-after", b"%d" % self.retry_after))
        if self.challenge:
            found.append((b"www-authenticate", self.challenge))
        return found


def refusal(error: Exception) -> Refusal:
    """Return the envelope of an exception. An `AmsError` shows its text; any other is a plain 500."""
    if isinstance(error, errors.AmsError):
        status = status_of(type(error))
        is_for_later = error.retriable or (isinstance(error, errors.TokenRefused) and error.later)
        retry_after = RETRY_AFTER_SECONDS if is_for_later else None
        if isinstance(error, errors.RateLimited):
            retry_after = RATE_SECONDS
        return Refusal(status.code, envelope(status, error.message), retry_after, _challenge(status, error))
    if isinstance(error, HTTPException):  # unknown paths and wrong methods (contract 1.3)
        if error.status_code == 405:
            return Refusal(405, envelope(HttpStatus(405, "METHOD_NOT_ALLOWED"), "Method not allowed"))
        return Refusal(404, envelope(STATUS[errors.NotFound], "Page not found"))
    if isinstance(error, MemoryError):
        return refusal(errors.Overloaded("Too little memory for this request now"))
    return Refusal(INTERNAL_ERROR.code, envelope(INTERNAL_ERROR, "Internal error"))


def _challenge(status: HttpStatus, error: errors.AmsError) -> bytes:
    """Return the login challenge of a 401; for a refused token with the envelope's reason (RFC 6750, 3)."""
    if status.code != 401:
        return b""
    if not isinstance(error, errors.TokenRefused):
        return REALM
    return REALM + b', error="invalid_token", error_description="%s"' % _BAD_TEXT.sub("?", error.message).encode()


def envelope(status: HttpStatus, message: str) -> bytes:
    """Return the error envelope of contract 1.1."""
    return msgspec.json.encode({"error": {"code": status.code, "message": message, "status": status.word}})
