"""Errors on the wire: the table of status codes by error class, and the envelope of contract 1.1."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from starlette.exceptions import HTTPException

from ams.core import errors
from ams.web.answers import Header, Refusal


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

RETRY_LATER: Header = (b"retry-after", b"2")


def status_of(kind: type[errors.AmsError]) -> HttpStatus:
    """Return the row of an error class or its nearest ancestor."""
    return next(STATUS[base] for base in kind.__mro__ if base in STATUS)


REALM = b'Bearer realm="ams"'
_BAD_TEXT = re.compile(r"[^ !#-\[\]-~]")  # not allowed in an `error_description` (RFC 6750, 3)


def refusal(error: Exception) -> Refusal:
    """Return the envelope of an exception. An `AmsError` shows its text; any other is a plain 500."""
    if isinstance(error, errors.AmsError):
        return _refusal(status_of(type(error)), error.message, _headers(error))
    if isinstance(error, HTTPException):  # unknown paths and wrong methods (contract 1.3)
        if error.status_code == 405:
            return _refusal(HttpStatus(405, "METHOD_NOT_ALLOWED"), "Method not allowed")
        return _refusal(STATUS[errors.NotFound], "Page not found")
    if isinstance(error, MemoryError):
        return refusal(errors.Overloaded("Too little memory for this request now"))
    return _refusal(HttpStatus(500, "INTERNAL_SERVER_ERROR"), "Internal error")


def _headers(error: errors.AmsError) -> Iterator[Header]:
    if isinstance(error, errors.RateLimited):
        yield b"retry-after", b"1"  # every rate allows a request within a second
    elif error.retriable or (isinstance(error, errors.TokenRefused) and error.later):
        yield RETRY_LATER
    if isinstance(error, errors.TokenRefused):  # with the envelope's reason (RFC 6750, 3)
        reason = _BAD_TEXT.sub("?", error.message).encode()
        yield b"www-authenticate", REALM + b', error="invalid_token", error_description="%s"' % reason
    elif isinstance(error, errors.NotAuthenticated):  # every 401 has a challenge (RFC 9110, 15.5.2)
        yield b"www-authenticate", REALM


def _refusal(status: HttpStatus, message: str, headers: Iterable[Header] = ()) -> Refusal:
    body = msgspec.json.encode({"error": {"code": status.code, "message": message, "status": status.word}})
    return Refusal(status.code, body, tuple(headers), message)
