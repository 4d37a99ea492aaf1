"""One table of errors (contract 4)."""

import json

import pytest

from ams.authn.certificates import crls
from ams.authn.http.errors import STATUS, MethodNotAllowed, refusal
from ams.core import errors

ROWS = [
    (errors.BadRequest("No certificate provided"), 400, "BAD REQUEST", "No certificate provided"),
    (errors.NotAuthenticated("Wrong Credentials"), 401, "UNAUTHORIZED", "Wrong Credentials"),
    (errors.CertificateRefused("x"), 403, "ACCESS_FORBIDDEN", "x"),
    (errors.NotAllowed(), 403, "ACCESS_FORBIDDEN", "Access to this resource is forbidden"),
    (errors.NotFound("Host was not found"), 404, "NOT FOUND", "Host was not found"),
    (MethodNotAllowed(("GET",)), 405, "METHOD NOT ALLOWED", "Method not allowed"),
    (errors.AlreadyExists("x"), 409, "CONFLICT", "x"),
    (errors.Conflict("x"), 409, "CONFLICT", "x"),
    (errors.TooLarge(), 413, "REQUEST ENTITY TOO LARGE", "Message size is too large"),
    (errors.Unprocessable("x"), 422, "UNPROCESSABLE ENTITY", "x"),
    (errors.RateLimited("x"), 429, "TOO MANY REQUESTS", "x"),
    (errors.RegistryUnavailable("x"), 500, "INTERNAL SERVER ERROR", "Database Error: x"),
    (errors.Unavailable("Backend error"), 500, "INTERNAL SERVER ERROR", "Internal Error: Backend error"),
    (crls.unreachable("u").error, 500, "INTERNAL SERVER ERROR", "Internal Error: Could not access CRL u"),
    (crls.too_long("").error, 500, "INTERNAL SERVER ERROR", "Internal Error: Unable to read CRL Data"),
    (crls.unparsable("").error, 500, "INTERNAL SERVER ERROR", "Internal Error: Unable to parse CRL Data"),
    (errors.Damaged("x"), 500, "INTERNAL SERVER ERROR", "Internal Error: x"),
    (ValueError("never told"), 500, "INTERNAL SERVER ERROR", "Internal Error: the service failed"),
    (errors.ServiceFailed("x"), 502, "BAD GATEWAY", "x"),
    (errors.Overloaded("x"), 503, "SERVICE UNAVAILABLE", "x"),
    (errors.ServiceTimeout("x"), 504, "GATEWAY TIMEOUT", "x"),
]


@pytest.mark.parametrize(("error", "code", "words", "message"), ROWS, ids=lambda value: str(value)[:20])
def test_each_error_has_its_envelope(error: Exception, code: int, words: str, message: str) -> None:
    refused = refusal(error)
    assert refused.code == code
    told = json.loads(refused.body)["error"]
    assert list(told.items()) == [("message", message), ("code", code), ("status", words)]
    assert refused.body.startswith(b'{\n "error": {\n  "message": ')


def test_every_class_of_error_has_a_row() -> None:
    def all_below(kind: type[errors.AmsError]) -> list[type[errors.AmsError]]:
        return [below for each in kind.__subclasses__() for below in (each, *all_below(each))]

    ours = [each for each in all_below(errors.AmsError) if each.__module__ == "ams.core.errors"]
    assert [each for each in ours if not any(base in STATUS for base in each.__mro__)] == []


@pytest.mark.parametrize("error", [errors.RateLimited(), errors.Overloaded()])
def test_who_is_turned_away_for_a_while_is_told_when_to_come_back(error: errors.AmsError) -> None:
    assert dict(refusal(error).headers)[b"retry-after"] == b"2"
