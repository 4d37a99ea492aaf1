import json
from collections.abc import Iterator

import pytest
from starlette.exceptions import HTTPException

from ams import errors
from ams.errors import AmsError
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


def test_only_errors_that_may_pass_ask_to_come_again() -> None:
    assert refusal(errors.LogUnavailable()).retry_after == refusal(errors.Overloaded()).retry_after == 2
    assert refusal(errors.RateLimited()).retry_after == 1
    assert refusal(errors.NotFound("x")).retry_after is None


def test_an_error_nobody_thought_of_tells_nothing() -> None:
    answer = refusal(RuntimeError("token 0123 of the secret path"))

    assert json.loads(answer.body)["error"] == {
        "code": 500, "message": "Internal error", "status": "INTERNAL_SERVER_ERROR"
    }  # fmt: skip
    assert answer.retry_after is None


def test_unknown_paths_and_wrong_methods_have_the_envelope() -> None:
    assert json.loads(refusal(HTTPException(404)).body)["error"]["status"] == "NOT_FOUND"
    assert json.loads(refusal(HTTPException(405)).body)["error"]["status"] == "METHOD_NOT_ALLOWED"
