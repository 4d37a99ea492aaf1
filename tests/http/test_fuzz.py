"""Whatever a client sends, the answer is the contract's: never a 5xx, the envelope, nothing stored when refused."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.actions import PATHS
from tests.support.served import SERVICE_TOKEN, WORKER_TOKEN, Served, served

FIELDS = [
    "ackIds", "messages", "data", "attributes", "messageId", "key", "value", "maxMessages", "returnImmediately", "x",
    "offset", "ackDeadlineSeconds", "topic", "pushConfig", "retryPolicy", "authorizationHeader", "base64Decode", "name",
    "schema", "description", "projects", "project", "roles", "service_roles", "email", "first_name", "authorized_users",
    "pushEndpoint", "mattermostUrl", "type", "period",
]  # fmt: skip
WORDS = [
    "", "P", "T", "S", "u", "publisher", "service_admin", "aGk=", "aG\nk=", "aGk", "msg 1", "10", "-1", "1e3", "true",
    "projects/P/topics/T", "/projects/P/topics/T", "projects/P/subscriptions/S:0", "projects/P/subscriptions/S:x",
    "projects/P/subscriptions/S:9223372036854775807", "projects/P/subscriptions/S:99999999999999999999", "\0", "\ud800",
    "%", "projects/P/schemas/X", "a/b", "ü", "' OR 1=1 --", "{{7*7}}", "x" * 300,
    "http_endpoint", "mattermost", "slowstart", "https://10.0.0.1/in", "https://[::1",
]  # fmt: skip
ACTIONS = [(method, path.replace("$P-x", "u").replace("$P", "P")) for method, path in PATHS.values()]
ACTIONS += [("GET", "/status"), ("GET", "/version"), ("GET", "/users/profile")]

texts = st.sampled_from(WORDS) | st.text(st.characters(codec=None), max_size=12)
"""Also text with halves of surrogate pairs, which JSON can say and UTF-8 cannot."""
numbers = st.integers() | st.floats() | st.sampled_from([0, -1, 600, 601, 2**31, 2**63, 2**64, 10**40, 1e308])
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | texts, inner, max_size=5),
    max_leaves=12,
)
objects = st.dictionaries(
    st.sampled_from([each for name in FIELDS for each in (name, name.upper())]), values, max_size=5
)
GOOD = {
    "messages": [{"data": "aGk=", "attributes": {"k": "v"}}], "ackIds": ["projects/P/subscriptions/S:0"],
    "maxMessages": "3", "returnImmediately": "true", "topic": "projects/P/topics/T", "ackDeadlineSeconds": 10,
    "pushConfig": {}, "projects": [{"project": "P", "roles": ["publisher"]}], "service_roles": [], "offset": 0,
    "roles": ["consumer"], "email": "u@site.example", "authorized_users": ["u"],
}  # fmt: skip
"""A body that is good for every action but the creation of topics: what an action does not know it ignores."""


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """The good body with other values in some of its fields."""
    others = draw(st.dictionaries(st.sampled_from(sorted(GOOD)), values, max_size=2))
    return json.dumps(GOOD | others).encode()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The good body with a piece cut out and another put in."""
    text = json.dumps(GOOD).encode()
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(start + 8, len(text))))
    return text[:start] + draw(st.binary(max_size=6)) + text[end:]


bodies = (
    spoilt() | damaged() | st.binary(max_size=40) | (objects | values).map(lambda value: json.dumps(value).encode())
)
names = st.sampled_from(["a.b", "..", "T:publish", "ü", "T\n", "x" * 256, "%2F", ""]) | st.text(max_size=8)


@st.composite
def targets(draw: st.DrawFn) -> tuple[str, str]:
    """An action's method and path; now and then with another name, verb or method."""
    method, path = draw(st.sampled_from(ACTIONS))
    change = draw(st.sampled_from(["nothing"] * 6 + ["name", "verb", "method", "all"]))
    if change == "name":
        path = path[: path.rindex("/") + 1] + draw(names)
    elif change == "verb":
        path = path + ":" + draw(names)
    elif change == "method":
        method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "BREW"]))
    elif change == "all":
        path = "/" + draw(names)
    return method, "/v1" + path


queries = st.binary(max_size=20) | st.builds(
    lambda name, value: f"{name}={value}".encode(),
    st.sampled_from(["pageSize", "pageToken", "details", "project", "time", "key"]),
    st.sampled_from(
        ["", "x", "1", "-1", "9" * 30, "%", "%ff", "true", "MQ==", "2024-01-02T03:04:05Z", "9999-12-31 23:59:59Z"]
    ),
)
headers = st.lists(
    st.tuples(
        st.sampled_from([b"content-type", b"content-length", b"x-request-id", b"origin", b"accept", b"host"]),
        st.binary(max_size=12) | st.sampled_from([b"0", b"99999999999999999999", b"-1", b"application/xml"]),
    ),
    max_size=3,
)
tokens = st.sampled_from([SERVICE_TOKEN.encode()] * 8 + [b"", b"0" * 64, b"\xff\x00"])


class Request(NamedTuple):
    method: str
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Reply(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


requests = st.builds(
    lambda target, query, headers, token, body: Request(*target, query, [*headers, (b"x-api-key", token)], body),
    targets(), queries, headers, tokens, bodies,
)  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(
        tmp_path_factory.mktemp("fuzz") / "ams-data", pull_wait=0, push_enabled=True, push_worker_token=WORKER_TOKEN
    ) as service:
        yield service


async def ask(service: Served, request: Request) -> Reply:
    """Give the application a request as the server would."""
    sent: list[dict[str, Any]] = []

    coming = iter([{"type": "http.request", "body": request.body}])

    async def receive() -> dict[str, Any]:
        event = next(coming, None)
        return event or await asyncio.get_running_loop().create_future()  # the client stays

    async def send(event: Any) -> None:
        sent.append(dict(event))

    scope = {
        "type": "http", "method": request.method, "path": request.path, "query_string": request.query,
        "headers": request.headers, "root_path": "",
    }  # fmt: skip
    await service.run.service.app(scope, receive, send)
    start, *rest = sent
    return Reply(start["status"], dict(start["headers"]), b"".join(event.get("body", b"") for event in rest))


async def stored(service: Served) -> object:
    """Return what there is: every user, list, topic, subscription, bound and position."""
    lists = ["/projects", "/users"]
    lists += [f"/projects/P/{each}" for each in ("topics", "subscriptions", "topics/T:acl", "subscriptions/S:acl")]
    replies = [await ask(service, asked("GET", path)) for path in [*lists, "/projects/P/subscriptions/S:offsets"]]
    return [(reply.status, reply.body) for reply in replies]


def asked(method: str, path: str, body: object = None) -> Request:
    return Request(
        method, "/v1" + path, b"details=true", [(b"x-api-key", SERVICE_TOKEN.encode())], json.dumps(body).encode()
    )


async def furnish(service: Served) -> None:
    """Have project P with topic T, subscription S and member u, whatever became of them."""
    await ask(service, asked("POST", "/projects/P", {}))
    await ask(service, asked("PUT", "/projects/P/topics/T", {}))
    await ask(service, asked("PUT", "/projects/P/subscriptions/S", {"topic": "projects/P/topics/T"}))
    await ask(service, asked("POST", "/users/u", {"projects": [{"project": "P", "roles": ["publisher"]}]}))


@settings(max_examples=150, deadline=None)
@given(requests)
def test_any_request_is_answered_as_the_contract_says(service: Served, request: Request) -> None:
    async def example() -> tuple[object, Reply, object]:
        await furnish(service)
        before = await stored(service)
        return before, await ask(service, request), await stored(service)

    before, reply, after = asyncio.run_coroutine_threadsafe(example(), service.loop).result(20)

    assert reply.status in (200, 301, 400, 401, 403, 404, 405, 408, 409, 413), reply
    assert b"x-request-id" in reply.headers or reply.status == 301 or request.method == "OPTIONS"
    if reply.status not in (200, 301):
        error = json.loads(reply.body)["error"]
        assert set(error) == {"code", "message", "status"}
        assert error["code"] == reply.status
        assert before == after
    elif reply.body:
        json.loads(reply.body)
