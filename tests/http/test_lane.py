"""The lane: hot requests whose heads are known are answered as they are over ASGI, and no way is taken twice."""

import asyncio
import gc
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ams.http.lane import LaneProtocol, LaneRequest
from tests.support.served import SERVICE_TOKEN, Served, served

SECONDS = 10
PUBLISH, PULL, ACK = "topics/T:publish", "subscriptions/S:pull", "subscriptions/S:acknowledge"
REQUEST_ID = re.compile(rb"(?i)\r\n(x-request-id|date): [^\r]+")


class Ways:
    """Counts the requests that were answered on the lane."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_lane = 0
        start = LaneProtocol._start

        def counted(protocol: LaneProtocol, admitted: Any) -> LaneRequest:
            self.on_lane += 1
            return start(protocol, admitted)

        monkeypatch.setattr(LaneProtocol, "_start", counted)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "data") as running, client_of(running) as http:
        http.post("/projects/P", json={}).raise_for_status()
        http.put("/projects/P/topics/T").raise_for_status()
        topic = {"topic": "projects/P/topics/T"}
        http.put("/projects/P/subscriptions/S", json=topic).raise_for_status()
        yield running


def client_of(running: Served, token: str = SERVICE_TOKEN) -> httpx.Client:
    url = f"{running.run.base_url}/v1"
    return httpx.Client(base_url=url, headers={"x-api-key": token}, trust_env=False, timeout=SECONDS)


def publish(http: httpx.Client, data: str = "aGk=", **headers: str) -> httpx.Response:
    return http.post(f"/projects/P/{PUBLISH}", json={"messages": [{"data": data}]}, headers=headers)


@contextmanager
def connected(running: Served) -> Iterator[socket.socket]:
    url = httpx.URL(running.run.base_url)
    with socket.create_connection((url.host, url.port), SECONDS) as connection:
        yield connection


def said(path: str, body: bytes, headers: bytes = b"") -> bytes:
    head = f"POST /v1/projects/P/{path} HTTP/1.1\r\nHost: x\r\nx-api-key: {SERVICE_TOKEN}\r\n".encode()
    return head + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


def answer(connection: socket.socket) -> bytes:
    """Return an answer, without what differs each time."""
    came = b""
    while b"\r\n\r\n" not in came:
        came += connection.recv(65536)
    head, _, body = came.partition(b"\r\n\r\n")
    length = int(head.lower().rpartition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    assert len(body) == length
    return REQUEST_ID.sub(b"", head) + b"\r\n\r\n" + body


def messages(*data: str) -> bytes:
    return json.dumps({"messages": [{"data": each} for each in data]}).encode()


def test_the_second_request_with_a_head_is_answered_on_the_lane_and_alike(service: Served, ways: Ways) -> None:
    with connected(service) as connection:
        answers = []
        for _ in range(3):
            for path, body in (
                (PUBLISH, messages("aGk=")),
                (PULL, b"{}"),
                (ACK, b'{"ackIds":["projects/P/subscriptions/S:0"]}'),
            ):
                connection.sendall(said(path, body))
                answers.append(answer(connection))

    assert ways.on_lane == 6
    assert [each.replace(b'"1"', b'"0"').replace(b'"2"', b'"0"') for each in answers[::3]] == answers[:1] * 3
    assert answers[1].startswith(b"HTTP/1.1 200")
    assert answers[2] == answers[5] == answers[8]


@pytest.mark.parametrize(
    "headers",
    [
        b"Origin: https://example.org\r\n",
        b"Connection: close\r\n",
        b"Expect: something\r\n",
        b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
    ],
)
def test_these_requests_never_take_the_lane(service: Served, ways: Ways, headers: bytes) -> None:
    for _ in range(3):
        with connected(service) as connection:
            connection.sendall(said(PUBLISH, messages("aGk="), headers))
            assert answer(connection).startswith(b"HTTP/1.1 200")

    assert ways.on_lane == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PUBLISH, b"{"),
        (PUBLISH, messages("aGk")),
        (PUBLISH, b'{"messages":[{}]}'),
        (PULL, b"["),
        (ACK, b"{}"),
        (ACK, b'{"ackIds":["projects/P/subscriptions/S:7"]}'),
        (ACK, b'{"ackIds":["projects/X/subscriptions/S:0"]}'),
    ],
)
def test_what_is_refused_is_refused_as_over_asgi_and_counted_once(
    service: Served, ways: Ways, path: str, body: bytes
) -> None:
    with connected(service) as connection:
        connection.sendall(said(path, body))
        first = answer(connection)
        before = service.run.service.api.answered[4]
        connection.sendall(said(path, body))

        assert answer(connection) == first
    assert first.startswith(b"HTTP/1.1 400")
    assert service.run.service.api.answered[4] == before + 1
    assert ways.on_lane == 0


def keyed(key: bytes, *data: str) -> bytes:
    return said(PUBLISH, messages(*data), b"Idempotency-Key: %b\r\n" % key)


def test_publishes_with_different_keys_share_what_is_known_of_their_head(service: Served, ways: Ways) -> None:
    with connected(service) as connection:
        answers = []
        for key in (b"a", b"b", b"a", b" b ", b"c"):
            connection.sendall(keyed(key, "aGk="))
            answers.append(answer(connection).rpartition(b"\r\n")[2])
        connection.sendall(said(PUBLISH, messages("aGk=")))
        answers.append(answer(connection).rpartition(b"\r\n")[2])

    assert answers == [b'{"messageIds":["%d"]}' % number for number in (0, 1, 0, 1, 2, 3)]
    assert ways.on_lane == 5


@pytest.mark.parametrize(
    ("keys", "status"),
    [(b"Idempotency-Key: a\r\n", 409), (b"Idempotency-Key: a\r\nIdempotency-Key: b\r\n", 400),
     (b"Idempotency-Key: \r\n", 400), (b"Idempotency-Key: \xfc\r\n", 400)],
    ids=["other messages", "two", "empty", "no ASCII"],
)  # fmt: skip
def test_what_is_wrong_with_a_key_is_told_as_over_asgi(service: Served, ways: Ways, keys: bytes, status: int) -> None:
    with connected(service) as connection:
        connection.sendall(keyed(b"a", "aGk="))
        assert answer(connection).startswith(b"HTTP/1.1 200")
        told = []
        for unknown in (b"", b"User-Agent: another\r\n"):
            connection.sendall(said(PUBLISH, messages("aG8="), keys + unknown))
            told.append(answer(connection))

        assert told[0].startswith(b"HTTP/1.1 %d" % status)
        assert told[0] == told[1]
        assert ways.on_lane == 0


def test_a_key_that_is_under_way_is_waited_for(service: Served, ways: Ways) -> None:
    with connected(service) as first, connected(service) as second:
        for connection in (first, second):
            connection.sendall(said(PUBLISH, messages("aGk=")))
            answer(connection)
        for number in range(20):
            for connection in (first, second):
                connection.sendall(keyed(b"%d" % number, *["aGk="] * 100))
            assert answer(first) == answer(second)

    assert ways.on_lane == 41


def test_messages_that_their_schema_soon_allows_take_the_lane_and_others_do_not(service: Served, ways: Ways) -> None:
    objects, blank, number = messages("e30=", "e30="), messages("e30K"), messages("e30=", "MQ==")
    with client_of(service) as admin, connected(service) as connection:

        def said_of(body: bytes) -> bytes:
            connection.sendall(said(PUBLISH, body))
            return answer(connection)

        admin.post("/projects/P/schemas/X", json={"type": "json", "schema": {"type": "object"}}).raise_for_status()
        attached = {"schema": "projects/P/schemas/X"}
        admin.post("/projects/P/topics/T:attachSchema", json=attached).raise_for_status()
        assert all(b" 200 " in said_of(body) for body in (objects, objects, blank))
        assert ways.on_lane == 2

        refused = said_of(number)
        assert b" 400 " in refused
        assert b"Message 1 data is not valid,(root): Invalid type. Expected: object, given: integer" in refused
        assert ways.on_lane == 2

        admin.put("/projects/P/schemas/X", json={"schema": {"type": "number"}}).raise_for_status()
        assert b" 400 " in said_of(objects)
        assert all(b" 200 " in said_of(messages("MQ==")) for _ in range(2))
        assert ways.on_lane == 4


def test_the_key_of_a_pull_means_nothing(service: Served, ways: Ways) -> None:
    with connected(service) as connection:
        connection.sendall(said(PUBLISH, messages("aGk=")))
        answer(connection)
        for keys in (b"", b"Idempotency-Key: a\r\n", b"Idempotency-Key: \r\n"):
            connection.sendall(said(PULL, b"{}", keys))
            assert b'"messageId":"0"' in answer(connection)

    assert ways.on_lane == 1


def test_a_head_without_its_rights_any_more_is_refused(service: Served, ways: Ways) -> None:
    with client_of(service) as admin:
        publisher = {"projects": [{"project": "P", "roles": ["publisher"]}]}
        token = admin.post("/users/pub", json=publisher).json()["token"]
        admin.post("/projects/P/topics/T:modifyAcl", json={"authorized_users": ["pub"]})
        with client_of(service, token) as http:
            assert [publish(http).status_code for _ in range(3)] == [200] * 3
            assert ways.on_lane == 2
            admin.post("/projects/P/topics/T:modifyAcl", json={"authorized_users": []})
            assert publish(http).status_code == 403
            admin.post("/projects/P/topics/T:modifyAcl", json={"authorized_users": ["pub"]})
            assert [publish(http).status_code for _ in range(2)] == [200] * 2
            assert ways.on_lane == 3
            admin.delete("/users/pub").raise_for_status()
            assert publish(http).status_code == 401


def test_rights_that_go_while_a_body_arrives_are_gone(service: Served) -> None:
    with client_of(service) as admin, connected(service) as connection:
        request = said(PUBLISH, messages("aGk="))
        for _ in range(2):
            connection.sendall(request)
            assert answer(connection).startswith(b"HTTP/1.1 200")
        connection.sendall(request[:-5])
        admin.delete("/projects/P/topics/T").raise_for_status()
        connection.sendall(request[-5:])

        assert answer(connection).startswith(b"HTTP/1.1 404")


def test_no_body_is_gathered_for_a_head_whose_rights_are_gone(service: Served, ways: Ways) -> None:
    with client_of(service) as admin, connected(service) as connection:
        request = said(PUBLISH, b" " * 200_000)
        for _ in range(2):
            connection.sendall(said(PUBLISH, messages("aGk=")))
            assert answer(connection).startswith(b"HTTP/1.1 200")
        admin.delete("/projects/P/topics/T").raise_for_status()
        connection.sendall(request[:1000])

        assert answer(connection).startswith(b"HTTP/1.1 404")
    assert ways.on_lane == 1


def test_requests_in_a_row_are_answered_in_their_order(service: Served, ways: Ways) -> None:
    request = said(PUBLISH, messages("aGk="))
    with connected(service) as connection:
        connection.sendall(request)
        assert b'["0"]' in answer(connection)
        connection.sendall(request * 20)
        came = b""
        while came.count(b"messageIds") < 20:
            came += connection.recv(65536)

    assert re.findall(rb'\["(\d+)"\]', came) == [b"%d" % number for number in range(1, 21)]
    assert 1 <= ways.on_lane <= 20


def test_a_rate_counts_each_request_once(tmp_path: Path, ways: Ways) -> None:
    with served(tmp_path / "data", user_requests_per_second=8) as service, client_of(service) as admin:
        admin.post("/projects/P", json={}).raise_for_status()
        admin.put("/projects/P/topics/T").raise_for_status()
        publisher = {"projects": [{"project": "P", "roles": ["publisher"]}]}
        token = admin.post("/users/pub", json=publisher).json()["token"]
        admin.post("/projects/P/topics/T:modifyAcl", json={"authorized_users": ["pub"]})
        with client_of(service, token) as http:
            statuses = [publish(http, "aGk=" if number % 2 else "aGk").status_code for number in range(12)]

    assert statuses == [400, 200] * 4 + [429] * 4
    assert ways.on_lane == 4


def test_a_client_that_leaves_changes_nothing_of_what_is_stored(service: Served, ways: Ways) -> None:
    request = said(PUBLISH, messages("aGk="))
    with connected(service) as connection:
        connection.sendall(request)
        answer(connection)
    for _ in range(5):
        with connected(service) as connection:
            connection.sendall(request)
    with client_of(service) as http:
        for _ in range(500):
            offsets = http.get("/projects/P/subscriptions/S:offsets").json()
            if offsets["max"] == 6:
                break
    assert offsets["max"] == 6
    assert ways.on_lane == 5
    assert asyncio.run_coroutine_threadsafe(_held(service), service.loop).result(SECONDS) == {}


async def _held(service: Served) -> dict[Any, int]:
    assert service.run.service.lane is not None
    return dict(service.run.service.lane.fast.bodies._by_holder)


def test_a_connection_whose_pull_was_answered_at_once_is_kept(tmp_path: Path, ways: Ways) -> None:
    with served(tmp_path / "data", request_seconds=0.4, keep_alive_seconds=30) as service:
        with client_of(service) as http:
            http.post("/projects/P", json={}).raise_for_status()
            http.put("/projects/P/topics/T").raise_for_status()
            http.put("/projects/P/subscriptions/S", json={"topic": "projects/P/topics/T"}).raise_for_status()
            publish(http)
        with connected(service) as connection:
            for pause in (0, 0.6, 0):
                connection.sendall(said(PULL, b"{}"))
                assert answer(connection).startswith(b"HTTP/1.1 200")
                time.sleep(pause)
    assert ways.on_lane == 2


def test_a_large_answer_is_whole(service: Served, ways: Ways) -> None:
    with client_of(service) as http:
        for _ in range(3):
            http.post(f"/projects/P/{PUBLISH}", json={"messages": [{"data": "QUFB" * 20_000}] * 10})
        for most in ("1", "3", "10", "30"):
            answers = [http.post(f"/projects/P/{PULL}", json={"maxMessages": most}).json() for _ in range(3)]
            assert answers[0] == answers[1] == answers[2]
            assert [each["message"]["messageId"] for each in answers[0]["receivedMessages"]] == [
                str(number) for number in range(int(most))
            ]
    assert ways.on_lane >= 8


def test_a_connection_that_ended_leaves_nothing_for_the_collector(service: Served, ways: Ways) -> None:
    """Over TLS each holds a quarter of a megabyte of buffers."""
    for _ in range(3):
        with connected(service) as connection:
            connection.sendall(said(PUBLISH, messages("aGk=")))
            assert answer(connection).startswith(b"HTTP/1.1 200")
    assert ways.on_lane >= 2

    gc.collect()
    gc.disable()
    before = connections()
    try:
        for _ in range(5):
            with connected(service) as connection:
                connection.sendall(said(PUBLISH, messages("aGk=")))
                assert answer(connection).startswith(b"HTTP/1.1 200")
        assert eventually(lambda: connections() <= before)
    finally:
        gc.enable()


def connections() -> int:
    return sum(isinstance(each, LaneProtocol) for each in gc.get_objects())


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something becomes true soon."""
    until = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_a_defect_in_sending_an_answer_ends_its_connection_and_nothing_else(
    service: Served, ways: Ways, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    with client_of(service) as http:
        for _ in range(2):
            http.post(f"/projects/P/{PUBLISH}", json={"messages": [{"data": "QUFB" * 20_000}] * 10})
        assert http.post(f"/projects/P/{PULL}", json={"maxMessages": "1"}).status_code == 200
        monkeypatch.setattr(LaneRequest, "_send_rest", fail)
        before = ways.on_lane
        with pytest.raises(httpx.HTTPError):
            http.post(f"/projects/P/{PULL}", json={"maxMessages": "20"})
        assert ways.on_lane == before + 1
        assert http.get("/version").status_code == 200
    said_of_it = capsys.readouterr()
    assert "request.failed" in said_of_it.out + said_of_it.err
