"""Errors on the wire of the certificate service: the table of status codes, and the envelope of contract 4."""

from typing import NamedTuple

from ams.authn.http import json_bodies
from ams.core import errors
from ams.http.errors import Status

STATUS: dict[type[errors.AmsError], Status] = {
    errors.InvalidInput: Status(400, "BAD REQUEST"),
    errors.NotAuthenticated: Status(401, "UNAUTHORIZED"),
    errors.NotAllowed: Status(403, "ACCESS_FORBIDDEN"),
    errors.NotFound: Status(404, "NOT FOUND"),
    errors.NotAcceptable: Status(406, "NOT ACCEPTABLE"),
    errors.AckTimeout: Status(408, "REQUEST TIMEOUT"),
    errors.AlreadyExists: Status(409, "CONFLICT"),
    errors.Conflict: Status(409, "CONFLICT"),
    errors.ChangedMeanwhile: Status(412, "PRECONDITION FAILED"),
    errors.TooLarge: Status(413, "REQUEST ENTITY TOO LARGE"),
    errors.UnknownCoding: Status(415, "UNSUPPORTED MEDIA TYPE"),
    errors.Unprocessable: Status(422, "UNPROCESSABLE ENTITY"),
    errors.QuotaExceeded: Status(429, "TOO MANY REQUESTS"),
    errors.RateLimited: Status(429, "TOO MANY REQUESTS"),
    errors.Unavailable: Status(500, "INTERNAL SERVER ERROR"),
    errors.Damaged: Status(500, "INTERNAL SERVER ERROR"),
    errors.Unusable: Status(500, "INTERNAL SERVER ERROR"),
    errors.ServiceFailed: Status(502, "BAD GATEWAY"),
    errors.Overloaded: Status(503, "SERVICE UNAVAILABLE"),
    errors.ServiceTimeout: Status(504, "GATEWAY TIMEOUT"),
}
"""The nearest ancestor of an error counts. Contract 4; 412 to 415, 429, 502 to 504 are ours (15, A17, A20)."""

RETRY_AFTER_SECONDS = 2  # also of a 429: thirty failures a minute allow one every two seconds


class MethodNotAllowed(Exception):
    """The path exists, but not with this method."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__("Method not allowed")
        self.allowed = allowed


class Refusal(NamedTuple):
    """An error on the wire."""

    code: int
    message: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


def refusal(error: Exception) -> Refusal:
    """Return the envelope of an exception. An `AmsError` shows its text; any other is a plain 500."""
    if isinstance(error, MethodNotAllowed):
        allow = (b"allow", ", ".join(error.allowed).encode())
        return _refusal(Status(405, "METHOD NOT ALLOWED"), "Method not allowed", allow)
    if not isinstance(error, errors.AmsError):
        return _refusal(Status(500, "INTERNAL SERVER ERROR"), "Internal Error: the service failed")
    status = next(STATUS[base] for base in type(error).__mro__ if base in STATUS)
    message = error.message
    if status.code == 500:
        message = f"{'Database' if isinstance(error, errors.RegistryUnavailable) else 'Internal'} Error: {message}"
    if isinstance(error, errors.Overloaded):
        return _refusal(status, message, (b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
    return _refusal(status, message)


def _refusal(status: Status, message: str, *headers: tuple[bytes, bytes]) -> Refusal:
    envelope = {"error": {"message": message, "code": status.code, "status": status.word}}
    return Refusal(status.code, message, json_bodies.encode_body(envelope), headers)
