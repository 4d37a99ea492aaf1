from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ams.access.admission import Caller
from ams.core.context import REQUEST
from ams.core.names import UserId, UserName
from ams.core.observing import add_request
from ams.http.tracing import Traced, log_change, shown_path

ANNA = Caller(UserId("1"), UserName("anna"), frozenset(), False, None)
SERVICE = Caller(None, None, frozenset(), True, None)
TOKEN = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "prefix",
    [
        "/v1/users:byToken/",
        "/v1/USERS:BYTOKEN/",
        "//v1//users:byToken/",
        "/users/byToken/",
        "/v1/users:byUUID/",
        "/v1/users:",
        "/v1/users:byToken:",
        "/users:",
        "/v1/./users:byTokens/",
    ],
)
@given(token=st.text(min_size=1))
def test_what_stands_behind_users_is_never_shown(prefix: str, token: str) -> None:
    shown = shown_path(prefix + "!" + token)

    assert shown.endswith("***")
    assert prefix.startswith(shown.removesuffix("***"))


@pytest.mark.parametrize("path", ["/v1/users/{}", "/v1/projects/{}/topics/t", "/{}", "/v1/users/{}:refreshToken"])
@pytest.mark.parametrize("token", [TOKEN, TOKEN.upper(), TOKEN[:40], TOKEN * 3])
def test_what_looks_like_a_token_is_not_shown_either(path: str, token: str) -> None:
    assert shown_path(path.format(token)) == path.format("***")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/projects/P/topics/t:publish",
        "/v1/users:byUUID/0f8fad5b-d9cb-469f-a165-70867728950e",
        "/v1/projects/P/topics/users:publish",
        "/v1/users/users:refreshToken",
        "",
    ],
)
def test_any_other_path_is_shown_as_it_is(path: str) -> None:
    assert shown_path(path) == path


async def changes(method: str, action: str | None, caller: Caller | None) -> list[Any]:
    with capture_logs() as said:
        await log_change(method, action, caller, "/v1/projects/P/topics/t")
    return list(said)


async def test_a_change_says_who_did_what() -> None:
    line = {"event": "changed", "log_level": "info", "action": "topics:create", "resource": "/projects/P/topics/t"}

    assert await changes("PUT", "topics:create", ANNA) == [line | {"by": "anna"}]
    assert await changes("PUT", "topics:create", SERVICE) == [line | {"by": "(service token)"}]


@pytest.mark.parametrize(
    ("method", "action", "caller"),
    [
        ("GET", "topics:show", ANNA),
        ("GET", None, None),
        ("POST", "schemas:validateMessage", ANNA),
        ("POST", "schemas:dryRun", ANNA),
    ],
)
async def test_what_only_reads_is_no_change(method: str, action: str | None, caller: Caller | None) -> None:
    assert await changes(method, action, caller) == []


async def test_a_request_is_said_also_when_it_fails() -> None:
    async def app(*_: object) -> None:
        raise RuntimeError

    async def nothing() -> Any:
        return {}

    async def send(_: Any) -> None:
        return None

    with capture_logs() as said, pytest.raises(RuntimeError):
        await Traced(app)({"type": "http", "method": "GET", "path": "/v1/status"}, nothing, send)

    assert [(line["path"], line["status"]) for line in said] == [("/v1/status", None)]


def test_lines_outside_of_requests_name_none() -> None:
    assert add_request(None, "info", {"event": "x"}) == {"event": "x"}
    before = REQUEST.set(b"probe-7")
    try:
        assert add_request(None, "info", {"event": "x"}) == {"event": "x", "request": "probe-7"}
    finally:
        REQUEST.reset(before)
