import json
from collections.abc import Iterator

import pytest

from ams.core import errors
from ams.core.errors import AmsError
from ams.http.errors import refusal, status_of


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


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(errors.LogUnavailable(), 2), (errors.Overloaded(), 2), (errors.RateLimited(), 1), (errors.NotFound("x"), None),
     (errors.TokenRefused("x", later=True), 2), (errors.TokenRefused("x"), None), (RuntimeError("x"), None),
     (MemoryError(), 2)],
)  # fmt: skip
def test_only_errors_that_may_pass_ask_to_come_again(error: Exception, seconds: int | None) -> None:
    assert refusal(error).retry_after == seconds


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


def test_an_error_nobody_thought_of_tells_nothing_and_one_of_memory_may_pass() -> None:
    told = json.loads(refusal(RuntimeError("token 0123 of the secret path")).body)["error"]

    assert told == {"code": 500, "message": "Internal error", "status": "INTERNAL_SERVER_ERROR"}
    assert refusal(MemoryError()).code == 503


BACKEND = (500, "INTERNAL_SERVER_ERROR")
WIRE = {
    "InvalidInput": (400, "INVALID_ARGUMENT"), "BadRequest": (400, "BAD_REQUEST"),
    "NotAuthenticated": (401, "UNAUTHORIZED"), "NotAllowed": (403, "FORBIDDEN"), "NotFound": (404, "NOT_FOUND"),
    "NotAcceptable": (406, "NOT_ACCEPTABLE"), "AckTimeout": (408, "TIMEOUT"), "AlreadyExists": (409, "ALREADY_EXISTS"),
    "Conflict": (409, "CONFLICT"), "KeyReused": (409, "CONFLICT"), "TooLarge": (413, "INVALID_ARGUMENT"),
    "RateLimited": (429, "RESOURCE_EXHAUSTED"), "Overloaded": (503, "UNAVAILABLE"),
    "LogUnavailable": BACKEND, "CursorsUnavailable": BACKEND, "RegistryUnavailable": BACKEND, "Damaged": BACKEND,
    "Unusable": BACKEND,
}  # fmt: skip
"""Code and word of each error, typed in from the contract's short forms and docs/reference/http.md."""


@pytest.mark.parametrize(("name", "wire"), WIRE.items(), ids=WIRE)
def test_an_error_has_its_code_and_word_on_the_wire(name: str, wire: tuple[int, str]) -> None:
    answer = refusal(getattr(errors, name)("x"))

    assert (answer.code, json.loads(answer.body)["error"]["status"]) == wire


@pytest.mark.parametrize(
    ("kind", "text"),
    [(errors.RateLimited, "Too many requests"), (errors.Unavailable, "Backend Error"),
     (errors.RegistryUnavailable, "Internal error while querying datastore")],
)  # fmt: skip
def test_an_error_that_passes_says_no_more_than_this(kind: type[AmsError], text: str) -> None:
    """All other texts are in rows of the contract."""
    assert kind().message == text
