import pytest

from ams.client import errors


def envelope(code: int, message: str, status: str) -> bytes:
    return f'{{"error": {{"code": {code}, "message": "{message}", "status": "{status}"}}}}'.encode()


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (400, "INVALID_ARGUMENT", errors.InvalidInput),
        (400, "BAD_REQUEST", errors.InvalidInput),
        (401, "UNAUTHORIZED", errors.NotAuthenticated),
        (403, "FORBIDDEN", errors.NotAllowed),
        (404, "NOT_FOUND", errors.NotFound),
        (408, "TIMEOUT", errors.AckTimeout),
        (409, "ALREADY_EXISTS", errors.AlreadyExists),
        (409, "CONFLICT", errors.Conflict),
        (413, "INVALID_ARGUMENT", errors.TooLarge),
        (429, "", errors.Overloaded),
        (500, "INTERNAL_SERVER_ERROR", errors.Unavailable),
        (503, "UNAVAILABLE", errors.Overloaded),
        (418, "", errors.Refused),
    ],
)
def test_an_envelope_becomes_the_error_of_its_code(code: int, status: str, kind: type[errors.Refused]) -> None:
    error = errors.refusal(code, envelope(code, "what happened", status))

    assert type(error) is kind
    assert (error.code, error.message, error.status) == (code, "what happened", status)


@pytest.mark.parametrize("body", [b"", b"404 page not found\n", b'{"detail": "no"}', b'{"error": "no"}', b"\xff"])
def test_a_body_that_is_no_envelope_is_not_of_ams(body: bytes) -> None:
    error = errors.refusal(404, body)

    assert isinstance(error, errors.NotAms)
    assert error.message.startswith("answer 404 without an AMS error: no AMS is there")


@pytest.mark.parametrize("status", [429, 502, 503])
def test_what_a_proxy_says_when_the_service_is_away_or_busy_may_pass(status: int) -> None:
    error = errors.refusal(status, b"<html>later</html>")

    assert isinstance(error, errors.Unavailable)
    assert error.message == f"answer {status} without an AMS error"


def test_an_error_says_how_long_to_wait() -> None:
    error = errors.refusal(503, envelope(503, "busy", "UNAVAILABLE"), "2")

    assert isinstance(error, errors.Overloaded)
    assert error.retry_after == "2"


def test_only_what_may_pass_by_itself_is_retriable() -> None:
    assert errors.refusal(500, b"").retriable
    assert errors.refusal(503, b"").retriable
    assert errors.Unreachable("").retriable
    assert not errors.refusal(409, b"").retriable
    assert not errors.NotAms("").retriable
