"""Clients that violate the protocol, flood, or are slow or silent, on real connections; the others are not affected."""

import contextlib
import json
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.web.http2_relay import PREFACE
from tests.support.served import SERVICE_TOKEN, InProcessService, in_process_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until

HEAD = (
    b"POST /v1/projects/P/topics/T:publish HTTP/1.1\r\nhost: ams.example\r\nx-api-key: %b\r\n" % SERVICE_TOKEN.encode()
)
REQUEST_SECONDS = 0.5  # seconds until the impatient service gives up an incomplete request


@pytest.fixture(scope="module")
def strict_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    limits = {"max_connections": 50, "max_header_bytes": 4096, "max_body_bytes": 100_000}
    with in_process_service(
        tmp_path_factory.mktemp("strict") / "ams-data", trusted_proxies="127.0.0.1", **limits
    ) as service:
        prepare_project(service)
        yield service


@pytest.fixture(scope="module")
def impatient_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    data = tmp_path_factory.mktemp("impatient") / "ams-data"
    with in_process_service(
        data, request_seconds=REQUEST_SECONDS, pull_wait=2 * REQUEST_SECONDS, max_body_bytes=100_000
    ) as service:
        prepare_project(service)
        yield service


def prepare_project(service: InProcessService) -> None:
    service.ask("POST", "/projects/P", {})
    service.ask("PUT", "/projects/P/topics/T")
    service.ask("PUT", "/projects/P/subscriptions/S", {"topic": "projects/P/topics/T"})


def connect(service: InProcessService) -> socket.socket:
    return service.connect(PATIENCE_SECONDS)


def receive_all(client: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def send_parts(service: InProcessService, *parts: bytes) -> bytes:
    """Send bytes, then nothing more; return the answer until the service closes the connection."""
    with connect(service) as client:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                client.sendall(part)
        return receive_all(client)


def error_in(answer: bytes, status: int) -> str:
    """Return the text of the one error in an answer, which must be whole and in the envelope."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0].startswith(b"http/1.1 %d" % status), answer
    assert b"content-type: application/json; charset=utf-8" in lines
    assert b"content-length: %d" % len(body) in lines
    error = json.loads(body)["error"]
    assert error["code"] == status
    return str(error["message"])


@pytest.mark.parametrize("said", [
    b"GET\r\n\r\n", b"nonsense\r\n\r\n", b"GET /v1/version HTTP/9.9\r\n\r\n",
    b"GET /v1/version HTTP/0.9\r\nhost: x\r\n\r\n", b"GET /v1/version HTTP/2.0\r\nhost: x\r\n\r\n",
    b"GET /v1/version RTSP/1.0\r\nhost: x\r\n\r\n", b"OPTIONS /v1/version RTSP/1.1\r\nhost: x\r\n\r\n",
    b"SOURCE /v1/version ICE/1.0\r\nhost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 40,
    b"GET /v1/version HTTP/1.1\r\nhost ams.example\r\n\r\n", b"GET /v1/version HTTP/1.1\r\nx: \0\r\n\r\n",
    HEAD + b"content-length: x\r\n\r\n", HEAD + b"content-length: -1\r\n\r\n",
    HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
    HEAD + b"content-length: 99999999999999999999999\r\n\r\n", HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
])  # fmt: skip
def test_what_is_no_http_is_refused_in_the_envelope(strict_service: InProcessService, said: bytes) -> None:
    assert error_in(send_parts(strict_service, said), 400)


@pytest.mark.parametrize("hosts", [b"", b"host: a\r\nhost: a\r\n"])
def test_a_request_names_its_host_once(strict_service: InProcessService, hosts: bytes) -> None:
    """RFC 9112, 3.2."""
    said = b"GET /v1/version HTTP/1.1\r\n" + hosts + b"connection: close\r\n\r\n"
    assert error_in(send_parts(strict_service, said), 400) == "Host must be given once"


def test_a_request_of_http_1_0_needs_no_host(strict_service: InProcessService) -> None:
    assert send_parts(strict_service, b"GET /v1/version HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")


def test_a_field_may_name_another_protocol_as_often_as_the_limits_say(strict_service: InProcessService) -> None:
    fields = b"host: x\r\nx: GET /v1/versions RTSP/1.0\r\n" + b"x: y\r\n" * 97 + b"connection: close\r\n\r\n"
    said = b"GET /v1/version?" + b"a&" * 99 + b" HTTP/1.1\r\n" + fields
    assert send_parts(strict_service, said).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip", b"identity"])
def test_a_body_in_a_coding_that_is_not_undone_here_is_refused(strict_service: InProcessService, coding: bytes) -> None:
    answer = send_parts(strict_service, HEAD + b"transfer-encoding: " + coding + b"\r\n\r\n0\r\n\r\n")
    assert error_in(answer, 400) == "Transfer-Encoding can only be chunked"


def test_chunked_may_be_written_in_any_case(strict_service: InProcessService) -> None:
    said = HEAD + b"transfer-encoding: Chunked\r\nconnection: close\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    assert b"Transfer-Encoding" not in send_parts(strict_service, said)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([b"", b"GET ", b"GET /v1/", b"POST /v1/projects/P/topics/T:publish HTTP/1.1\r\n", HEAD])
    .flatmap(lambda head: st.binary(max_size=60).map(lambda rest: head + rest + b"\r\n\r\n"))
    .filter(lambda said: not said.startswith(PREFACE))  # haproxy answers it in HTTP/2
)  # fmt: skip
def test_no_bytes_make_the_service_fail(strict_service: InProcessService, said: bytes) -> None:
    with connect(strict_service) as client:
        client.sendall(said)
        client.shutdown(socket.SHUT_WR)
        answer = receive_all(client)

    assert not answer or answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4")), answer


def upgrade_request(name: str) -> bytes:
    return (
        f"POST /v1/projects/{name} HTTP/1.1\r\nHost: x\r\nx-api-key: {SERVICE_TOKEN}\r\nConnection: Upgrade\r\n"
        'Upgrade: h2c\r\nContent-Length: 22\r\n\r\n{"description":"kept"}'
    ).encode()


@pytest.mark.parametrize("spelling", [b"Upgrade: h2c", b"UPGRADE: h2c", b"uPgRaDe:h2c"])
def test_an_offer_to_upgrade_is_ignored_however_it_is_spelt(strict_service: InProcessService, spelling: bytes) -> None:
    with connect(strict_service) as client:
        client.sendall(upgrade_request(f"spelt-{spelling[:8].hex()}").replace(b"Upgrade: h2c", spelling))
        assert b'"description":"kept"' in client.recv(4000)


def test_a_blank_before_the_colon_of_a_header_is_refused(strict_service: InProcessService) -> None:
    """RFC 9112, 5.1: a proxy may read such a header as another one."""
    said = upgrade_request("blank").replace(b"Upgrade: h2c", b"upgrade :h2c")
    assert error_in(send_parts(strict_service, said), 400) == "Invalid HTTP request"


def test_an_offer_to_upgrade_may_come_in_two_packets(strict_service: InProcessService) -> None:
    whole = upgrade_request("c00000")
    for cut in range(whole.index(b"Connection") - 2, whole.index(b"kept"), 3):
        said = whole.replace(b"c00000", b"c%05d" % cut)
        with connect(strict_service) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.sendall(said[:cut])
            time.sleep(0.003)
            client.sendall(said[cut:])
            assert b'"description":"kept"' in client.recv(4000), cut


def test_bytes_behind_an_offer_to_upgrade_are_never_taken_for_a_request(strict_service: InProcessService) -> None:
    inner = b"POST /v1/projects/SMUGGLED HTTP/1.1\r\nHost: x\r\nx-api-key: %b\r\nContent-Length: 2\r\n\r\n{}"
    inner %= SERVICE_TOKEN.encode()
    first = b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n"
    second = (
        upgrade_request("second").partition(b"\r\n\r\n")[0].replace(b"22", b"%d" % len(inner)) + b"\r\n\r\n" + inner
    )

    for said in (first + second, second):
        with connect(strict_service) as client:
            client.sendall(said)
            with contextlib.suppress(ConnectionError):
                client.recv(4000)

    assert strict_service.call("GET", "/projects/SMUGGLED").status_code == 404


@pytest.mark.parametrize("before_the_end", [1, 2, 3])
def test_a_body_that_looks_like_an_offer_stays_whole(strict_service: InProcessService, before_the_end: int) -> None:
    """Behind a proxy that keeps connections, a request smuggled in a body would be the next client's."""
    inner = b"POST /v1/projects/FROMBODY HTTP/1.1\r\nHost: x\r\nx-api-key: %b\r\nContent-Length: 2\r\n\r\n{}"
    body = b"\nUpgrade: a" * 80 + b"\r\n\r\n" + inner % SERVICE_TOKEN.encode()
    head = b"POST /v1/projects/P HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with connect(strict_service) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(head[:-before_the_end])
        time.sleep(0.02)
        client.sendall(head[-before_the_end:] + body)
        client.shutdown(socket.SHUT_WR)
        assert receive_all(client).count(b"HTTP/1.1 ") == 1

    assert strict_service.call("GET", "/projects/FROMBODY").status_code == 404


def test_a_request_that_offers_to_upgrade_may_stand_between_others(strict_service: InProcessService) -> None:
    version = b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n"
    answers = send_parts(
        strict_service,
        version + upgrade_request("between") + version.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
    )
    assert [each[:3] for each in answers.split(b"HTTP/1.1 ")[1:]] == [b"200"] * 3
    assert b'"description":"kept"' in answers


@pytest.mark.parametrize(("rest", "reason"), [
    (b"?" + b"a&" * 100 + b" HTTP/1.1\r\n\r\n", "Query has too many fields: at most 100"),
    (b" HTTP/1.1\r\n" + b"x: y\r\n" * 101 + b"\r\n", "Request header is too large"),
    (b"?" + b"x" * 8000, "Request header is too large"),
    (b" HTTP/1.1\r\nx: " + b"x" * 8000, "Request header is too large"),
], ids=["fields of a query", "headers", "a line without end", "a header without end"])  # fmt: skip
def test_a_long_head_is_refused_before_it_ends(strict_service: InProcessService, rest: bytes, reason: str) -> None:
    assert error_in(send_parts(strict_service, b"GET /v1/version" + rest), 400) == reason


def test_a_long_query_is_refused(service: InProcessService) -> None:
    said = b"GET /v1/version?key=" + b"x" * 8190 + b" HTTP/1.1\r\n\r\n"
    assert error_in(send_parts(service, said), 400) == "Query is too long: at most 8192 bytes"


@pytest.mark.parametrize("begun", [b"", b"{"])
def test_a_body_announced_too_large_is_refused_before_it_comes(strict_service: InProcessService, begun: bytes) -> None:
    answer = send_parts(strict_service, HEAD + b"content-length: 100001\r\nconnection: close\r\n\r\n" + begun)
    assert error_in(answer, 413) == "Message size is too large"


def test_a_pull_may_wait_longer_than_a_request_may_take_to_arrive(impatient_service: InProcessService) -> None:
    started = time.monotonic()
    impatient_service.ask("POST", "/projects/P/subscriptions/S:pull", {})
    assert time.monotonic() - started > REQUEST_SECONDS


@pytest.mark.parametrize(("begun", "drop"), [
    (b"GET /v1/ver", b"s"), (b"GET /v1/version HTTP/1.1\r\nx: ", b"y"), (HEAD + b"content-length: 50\r\n\r\n", b""),
    (HEAD + b"content-length: 50\r\n\r\n{", b" "),
], ids=["line", "header", "no body", "body"])  # fmt: skip
def test_a_client_that_drips_is_given_up(impatient_service: InProcessService, begun: bytes, drop: bytes) -> None:
    answer = b""
    with connect(impatient_service) as client:
        client.sendall(begun)
        client.settimeout(REQUEST_SECONDS / 6)
        for _ in range(60):  # ten times as long as it waits for a request
            try:
                answer = client.recv(65536)
                break
            except TimeoutError:
                client.sendall(drop)

    assert error_in(answer, 400) == "Request took too long to arrive"


def test_a_connection_that_says_nothing_is_closed(impatient_service: InProcessService) -> None:
    assert send_parts(impatient_service) == b""


def test_connections_over_the_limit_are_told_to_come_again(strict_service: InProcessService) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connect(strict_service))
        refused = send_parts(strict_service)

    assert error_in(refused, 503) == "Too many connections"
    assert b"\r\nretry-after: 2\r\n" in refused

    def is_let_in() -> bool:
        """The service must first see that the open ones are closed."""
        with contextlib.suppress(httpx.HTTPError):
            return strict_service.call("GET", "/version").status_code == 200
        return False

    assert wait_until(is_let_in)


def test_a_thousand_waiting_pulls_are_all_woken_and_the_others_do_not_wait(tmp_path: Path) -> None:
    pull = HEAD.replace(b"topics/T:publish", b"subscriptions/S:pull") + b"content-length: 2\r\n\r\n{}"
    with in_process_service(tmp_path / "ams-data", pull_wait=60) as service, contextlib.ExitStack() as stack:
        prepare_project(service)
        waiting = [stack.enter_context(connect(service)) for _ in range(1000)]
        for client in waiting:
            client.sendall(pull)
        wait_until(lambda: service.run.service.deliverer.waiting == 1000)

        for _ in range(10):
            service.ask("GET", "/version")
        assert service.run.service.deliverer.waiting == 1000

        service.ask("POST", "/projects/P/topics/T:publish", {"messages": [{"data": "aGk="}]})
        assert all(b'"messageId":"0"' in client.recv(65536) for client in waiting)


# A half-closed client gets its answers

KEY = b"Host: x\r\nx-api-key: %b\r\n" % SERVICE_TOKEN.encode()
VERSION = b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n"
MESSAGE = b'{"messages":[{"data":"aGk="}]}'


def post(path: bytes, body: bytes) -> bytes:
    head = b"POST /v1/projects/half/%b HTTP/1.1\r\n" % path + KEY + b"Content-Length: %d\r\n\r\n" % len(body)
    return head + body


PUBLISH = post(b"topics/t:publish", MESSAGE)
CHUNKED = PUBLISH.partition(b"Content-Length")[0] + b"Transfer-Encoding: chunked\r\n\r\n1e\r\n%b\r\n0\r\n\r\n" % MESSAGE


@pytest.fixture(scope="module")
def half_project(service: InProcessService) -> bytes:
    """Return the name of a new project with a topic, and an empty subscription to one."""
    project = f"half-{uuid.uuid4()}"
    service.ask("POST", f"/projects/{project}", {})
    for name in ("t", "u"):
        service.ask("PUT", f"/projects/{project}/topics/{name}")
    service.ask("PUT", f"/projects/{project}/subscriptions/u", {"topic": f"projects/{project}/topics/u"})
    return project.encode()


def send_half_closed(address: tuple[str, int], said: bytes, project: bytes = b"") -> bytes:
    """Send, with this project for `half_project`, close the sending side, and return the answer."""
    with socket.create_connection(address, timeout=PATIENCE_SECONDS) as client:
        client.sendall(said.replace(b"/half/", b"/%b/" % project))
        client.shutdown(socket.SHUT_WR)
        return receive_all(client)


@pytest.mark.parametrize(
    ("said", "answers"), [(PUBLISH, 1), (CHUNKED, 1), (VERSION, 1), (PUBLISH * 3, 3), (VERSION + PUBLISH + VERSION, 3)]
)
def test_what_was_asked_is_answered(service: InProcessService, half_project: bytes, said: bytes, answers: int) -> None:
    for _ in range(2):  # over ASGI first, then as it is known
        assert send_half_closed(service.address, said, half_project).count(b"HTTP/1.1 200 OK") == answers


@pytest.mark.parametrize("said", [VERSION[:-5], PUBLISH[:-5], b""])
def test_an_unfinished_request_is_not_answered(service: InProcessService, half_project: bytes, said: bytes) -> None:
    assert send_half_closed(service.address, said, half_project) == b""


def test_the_operations_port_answers_too(service: InProcessService) -> None:
    address = urlsplit(service.run.operations_url)

    said = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    assert send_half_closed((str(address.hostname), int(address.port or 0)), said).endswith(b"ok\n")


def test_a_pull_that_waits_ends(service: InProcessService, half_project: bytes) -> None:
    """Its client may be gone, and other clients would lose its messages until the lease ends."""
    for _ in range(2):  # over ASGI first, then as it is known
        assert b"200" not in send_half_closed(service.address, post(b"subscriptions/u:pull", b"{}"), half_project)
    wait_until(lambda: service.run.service.deliverer.waiting == 0)
