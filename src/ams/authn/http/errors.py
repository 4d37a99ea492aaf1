"""Errors on the wire of the certificate service: their status codes and words, and the envelope of contract 4."""

from ams.authn.http import json_bodies
from ams.core import errors
from ams.http.errors import STATUS
from ams.web.answers import Refusal

WORDS = {
    400: "BAD REQUEST", 401: "UNAUTHORIZED", 403: "ACCESS_FORBIDDEN", 404: "NOT FOUND", 405: "METHOD NOT ALLOWED",
    406: "NOT ACCEPTABLE", 408: "REQUEST TIMEOUT", 409: "CONFLICT", 412: "PRECONDITION FAILED",
    413: "REQUEST ENTITY TOO LARGE", 415: "UNSUPPORTED MEDIA TYPE", 422: "UNPROCESSABLE ENTITY",
    429: "TOO MANY REQUESTS", 500: "INTERNAL SERVER ERROR", 502: "BAD GATEWAY", 503: "SERVICE UNAVAILABLE",
    504: "GATEWAY TIMEOUT",
}  # fmt: skip
"""Names of status codes in the envelope. Contract 4; 412 to 415, 429, 502 to 504 are ours (15, A17, A20)."""
CODES = {kind: status.code for kind, status in STATUS.items()} | {
    errors.Unprocessable: 422, errors.ServiceFailed: 502, errors.ServiceTimeout: 504
}  # fmt: skip
"""Status codes of AMS, and ours. The nearest ancestor of an error counts."""

RETRY_AFTER_SECONDS = 2  # also of a 429: thirty failures a minute allow one every two seconds


class MethodNotAllowed(Exception):
    """The path exists, but not with this method."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        super().__init__("Method not allowed")
        self.allowed = allowed


def refusal(error: Exception) -> Refusal:
    """Return the envelope of an exception. An `AmsError` shows its text; any other is a plain 500."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if isinstance(error, MethodNotAllowed):
        code, message = 405, "Method not allowed"
        headers = ((b"allow", ", ".join(error.allowed).encode()),)
    elif not isinstance(error, errors.AmsError):
        code, message = 500, "Internal Error: the service failed"
    else:
        code, message = next(CODES[base] for base in type(error).__mro__ if base in CODES), error.message
        if code == 500:
            message = f"{'Database' if isinstance(error, errors.RegistryUnavailable) else 'Internal'} Error: {message}"
        if isinstance(error, errors.Overloaded):
            headers = ((b"retry-after", b"%d" % RETRY_AFTER_SECONDS),)
    envelope = {"error": {"message": message, "code": code, "status": WORDS[code]}}
    return Refusal(code, json_bodies.encode_body(envelope), headers, message)
