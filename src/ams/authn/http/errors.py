"""Errors on the wire of the certificate service: the table of status codes, and the envelope of contract 4."""

from ams.authn.http import json_bodies
from ams.core import errors
from ams.http.errors import HttpStatus
from ams.web.answers import Refusal

STATUS: dict[type[errors.AmsError], HttpStatus] = {
    errors.InvalidInput: HttpStatus(400, "BAD REQUEST"),
    errors.NotAuthenticated: HttpStatus(401, "UNAUTHORIZED"),
    errors.NotAllowed: HttpStatus(403, "ACCESS_FORBIDDEN"),
    errors.NotFound: HttpStatus(404, "NOT FOUND"),
    errors.NotAcceptable: HttpStatus(406, "NOT ACCEPTABLE"),
    errors.AckTimeout: HttpStatus(408, "REQUEST TIMEOUT"),
    errors.AlreadyExists: HttpStatus(409, "CONFLICT"),
    errors.Conflict: HttpStatus(409, "CONFLICT"),
    errors.ChangedMeanwhile: HttpStatus(412, "PRECONDITION FAILED"),
    errors.TooLarge: HttpStatus(413, "REQUEST ENTITY TOO LARGE"),
    errors.UnknownCoding: HttpStatus(415, "UNSUPPORTED MEDIA TYPE"),
    errors.Unprocessable: HttpStatus(422, "UNPROCESSABLE ENTITY"),
    errors.QuotaExceeded: HttpStatus(429, "TOO MANY REQUESTS"),
    errors.RateLimited: HttpStatus(429, "TOO MANY REQUESTS"),
    errors.Unavailable: HttpStatus(500, "INTERNAL SERVER ERROR"),
    errors.Damaged: HttpStatus(500, "INTERNAL SERVER ERROR"),
    errors.Unusable: HttpStatus(500, "INTERNAL SERVER ERROR"),
    errors.ServiceFailed: HttpStatus(502, "BAD GATEWAY"),
    errors.Overloaded: HttpStatus(503, "SERVICE UNAVAILABLE"),
    errors.ServiceTimeout: HttpStatus(504, "GATEWAY TIMEOUT"),
}
"""The nearest ancestor of an error counts. Contract 4; 412 to 415, 429, 502 to 504 are ours (15, A17, A20)."""

RETRY_AFTER_SECONDS = 2  # also of a 429: thirty failures a minute allow one every two seconds


class MethodNotAllowed(Exception):
    """The path exists, but not with this method."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__("Method not allowed")
        self.allowed = allowed


def refusal(error: Exception) -> Refusal:
    """Return the envelope of an exception. An `AmsError` shows its text; any other is a plain 500."""
    if isinstance(error, MethodNotAllowed):
        allow = (b"allow", ", ".join(error.allowed).encode())
        return _refusal(HttpStatus(405, "METHOD NOT ALLOWED"), "Method not allowed", allow)
    if not isinstance(error, errors.AmsError):
        return _refusal(HttpStatus(500, "INTERNAL SERVER ERROR"), "Internal Error: the service failed")
    status = next(STATUS[base] for base in type(error).__mro__ if base in STATUS)
    message = error.message
    if status.code == 500:
        message = f"{'Database' if isinstance(error, errors.RegistryUnavailable) else 'Internal'} Error: {message}"
    if isinstance(error, errors.Overloaded):
        return _refusal(status, message, (b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
    return _refusal(status, message)


def _refusal(status: HttpStatus, message: str, *headers: tuple[bytes, bytes]) -> Refusal:
    envelope = {"error": {"message": message, "code": status.code, "status": status.word}}
    return Refusal(status.code, json_bodies.encode_body(envelope), headers, message)
