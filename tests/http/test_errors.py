import json
from collections.abc import Iterator

import pytest
from starlette.exceptions import HTTPException

from ams.core import errors
from ams.core.errors import AmsError
from ams.http.errors import RETRY_AFTER_SECONDS, refusal, status_of


def family(kind: type[AmsError]) -> Iterator[type[AmsError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__ and child is not errors.Unusable:  # that one ends the start, not a call
            yield child
            yield from family(child)


@pytest.mark.parametrize("kind", list(family(AmsError)), ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_and_the_envelope(kind: type[AmsError]) -> None:
    answer = refusal(kind("what happened"))

    assert answer.code == status_of(kind).code
    assert json.loads(answer.body) == {
        "error": {"code": answer.code, "message": "what happened", "status": status_of(kind).word}
    }


def test_only_errors_that_may_pass_ask_to_come_again() -> None:
    assert refusal(errors.LogUnavailable()).retry_after == refusal(errors.Overloaded()).retry_after == 2
    assert refusal(errors.RateLimited()).retry_after == 1
    assert refusal(errors.NotFound("x")).retry_after is None
    assert refusal(errors.TokenRefused("x", later=True)).retry_after == 2
    assert refusal(errors.TokenRefused("x")).retry_after is None


def test_a_401_says_how_to_log_in_and_why_a_token_was_refused() -> None:
    """RFC 9110, 15.5.2, and RFC 6750, 3."""
    plain = b'Bearer realm="ams"'

    assert refusal(errors.NotAuthenticated()).challenge == refusal(errors.UnknownToken()).challenge == plain
    assert refusal(errors.NotAllowed()).challenge == b""
    assert refusal(errors.TokenRefused("It has expired")).headers == [
        (b"www-authenticate", plain + b', error="invalid_token", error_description="It has expired"')
    ]
    odd = refusal(errors.TokenRefused('no "key" of \\ \r\nX: y \u00e9'))
    assert odd.challenge.endswith(b'error_description="no ?key? of ? ??X: y ?"')


def test_an_error_nobody_thought_of_tells_nothing() -> None:
    answer = refusal(RuntimeError("token 0123 of the secret path"))

    assert json.loads(answer.body)["error"] == {
        "code": 500, "message": "Internal error", "status": "INTERNAL_SERVER_ERROR"
    }  # fmt: skip
    assert answer.retry_after is None


def test_unknown_paths_and_wrong_methods_have_the_envelope() -> None:
    assert json.loads(refusal(HTTPException(404)).body)["error"]["status"] == "NOT_FOUND"
    assert json.loads(refusal(HTTPException(405)).body)["error"]["status"] == "METHOD_NOT_ALLOWED"


WIRE = {
    "InvalidInput": (400, "INVALID_ARGUMENT"),
    "BadRequest": (400, "BAD_REQUEST"),
    "NotAuthenticated": (401, "UNAUTHORIZED"),
    "NotAllowed": (403, "FORBIDDEN"),
    "NotFound": (404, "NOT_FOUND"),
    "NotAcceptable": (406, "NOT_ACCEPTABLE"),
    "AckTimeout": (408, "TIMEOUT"),
    "AlreadyExists": (409, "ALREADY_EXISTS"),
    "Conflict": (409, "CONFLICT"),
    "KeyReused": (409, "CONFLICT"),
    "TooLarge": (413, "INVALID_ARGUMENT"),
    "RateLimited": (429, "RESOURCE_EXHAUSTED"),
    "LogUnavailable": (500, "INTERNAL_SERVER_ERROR"),
    "CursorsUnavailable": (500, "INTERNAL_SERVER_ERROR"),
    "RegistryUnavailable": (500, "INTERNAL_SERVER_ERROR"),
    "Damaged": (500, "INTERNAL_SERVER_ERROR"),
    "Unusable": (500, "INTERNAL_SERVER_ERROR"),
    "Overloaded": (503, "UNAVAILABLE"),
}
"""Code and word of each error, typed in from the contract's short forms and docs/reference/http.md."""


@pytest.mark.parametrize(("name", "wire"), WIRE.items(), ids=WIRE)
def test_an_error_has_its_code_and_word_on_the_wire(name: str, wire: tuple[int, str]) -> None:
    answer = refusal(getattr(errors, name)("x"))

    assert (answer.code, json.loads(answer.body)["error"]["status"]) == wire


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (errors.NotAuthenticated, "Unauthorized"),
        (errors.NotAllowed, "Access to this resource is forbidden"),
        (errors.AckTimeout, "ack timeout"),
        (errors.TopicGone, "Topic doesn't exist"),
        (errors.SubscriptionGone, "Subscription doesn't exist"),
        (errors.KeyReused, "Idempotency key reused with other content"),
        (errors.TooLarge, "Message size is too large"),
        (errors.RateLimited, "Too many requests"),
        (errors.Unavailable, "Backend Error"),
        (errors.RegistryUnavailable, "Internal error while querying datastore"),
    ],
)
def test_an_error_has_the_text_clients_know(kind: type[AmsError], text: str) -> None:
    assert kind().message == text


def test_a_request_that_memory_is_too_short_for_may_come_again() -> None:
    refused = refusal(MemoryError())

    assert (refused.code, refused.retry_after) == (503, RETRY_AFTER_SECONDS)
