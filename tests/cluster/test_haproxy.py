import contextlib
import http.client
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest
from google.pubsub_v1 import GetTopicRequest

from cluster.certificates import Authority
from cluster.deployed import haproxy_configuration
from cluster.haproxy import Backend, Haproxy, check
from cluster.ports import free_port
from tests.support.service import live_service

pytestmark = pytest.mark.haproxy


class Stub(ThreadingHTTPServer):
    """A node that answers its own name, also as an operations port; `ready` and `breaks` say how it is."""

    def __init__(self, name: str, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.name = name
        self.ready = True
        self.breaks = False
        self.seen: list[str] = []
        self.checks = 0
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def backend(self) -> Backend:
        return Backend(self.name, self.server_port, self.server_port)

    def handle_error(self, *_: object) -> None: ...  # haproxy breaks connections as it likes

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stub

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/readyz":
            self.server.checks += 1
            return self.answer(200 if self.server.ready else 503)
        self.server.seen.append(self.path)
        if self.server.breaks:
            self.close_connection = True
            return None
        return self.answer(200)

    do_POST = do_GET  # noqa: N815 - the name http.server asks for

    def answer(self, status: int) -> None:
        body = self.server.name.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def nodes() -> Iterator[tuple[Stub, Stub]]:
    one, two = Stub("one"), Stub("two")
    yield one, two
    one.close()
    two.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def haproxy(nodes: tuple[Stub, Stub], authority: Authority, tmp_path: Path) -> Iterator[Haproxy]:
    with Haproxy(tmp_path, [each.backend for each in nodes], authority.sign("haproxy").both) as haproxy:
        eventually(lambda: all(state == "UP" for state in haproxy.states().values()))
        yield haproxy


def eventually(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def ask(haproxy: Haproxy, authority: Authority, method: str, path: str, **headers: str) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=authority.ca)
    connection = http.client.HTTPSConnection("127.0.0.1", haproxy.port, context=context, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, b"{}" if method == "POST" else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_the_deployed_configuration_has_no_fault(tmp_path: Path, authority: Authority) -> None:
    own = tmp_path / "haproxy.cfg"
    certificate = str(authority.sign("here").both)
    addresses = re.sub(r"node\d\.example", "127.0.0.1", haproxy_configuration())
    own.write_text(
        addresses.replace("/etc/haproxy/ams.pem", certificate).replace("/etc/haproxy/nodes-ca.pem", str(authority.ca))
    )

    check(own)


def test_both_nodes_are_asked_and_the_log_has_no_query(
    haproxy: Haproxy, authority: Authority, nodes: tuple[Stub, Stub]
) -> None:
    answers = {ask(haproxy, authority, "GET", "/v1/projects?key=s3cr3t") for _ in range(4)}

    assert answers == {(200, "one"), (200, "two")}
    eventually(lambda: haproxy.process.log.read_text().count("GET /v1/projects ") == 4)
    assert "s3cr3t" not in haproxy.process.log.read_text()


def test_a_node_that_is_not_ready_gets_nothing(
    haproxy: Haproxy, authority: Authority, nodes: tuple[Stub, Stub]
) -> None:
    nodes[0].ready = False
    eventually(lambda: haproxy.states()["one"] == "DOWN")

    assert {ask(haproxy, authority, "GET", "/")[1] for _ in range(4)} == {"two"}


def test_when_no_node_is_ready_one_that_answers_is_asked(
    haproxy: Haproxy, authority: Authority, nodes: tuple[Stub, Stub]
) -> None:
    for node in nodes:
        node.ready = False
    eventually(lambda: set(haproxy.states().values()) == {"DOWN"})

    assert ask(haproxy, authority, "GET", "/")[0] == 200


REPEATED = [
    ("GET", "/v1/projects/p/topics", {}),
    ("POST", "/v1/projects/p/subscriptions/s:pull", {}),
    ("POST", "/v1/projects/p/subscriptions/s:acknowledge", {}),
    ("POST", "/v1/projects/p/subscriptions/s:modifyOffset", {}),
    ("POST", "/v1/projects/p/subscriptions/s:seek", {}),
    ("POST", "/v1/projects/p/topics/t:publish", {"Idempotency-Key": "k"}),
]


@pytest.mark.parametrize(("method", "path", "headers"), REPEATED)
def test_what_can_do_no_harm_is_sent_again_when_its_node_dies(
    haproxy: Haproxy,
    authority: Authority,
    nodes: tuple[Stub, Stub],
    method: str,
    path: str,
    headers: dict[str, str],
) -> None:
    nodes[0].breaks = True

    assert [ask(haproxy, authority, method, path, **headers) for _ in range(4)] == [(200, "two")] * 4
    assert path in nodes[0].seen


def test_a_publish_in_flight_is_not_sent_again_and_its_error_is_in_the_envelope(
    haproxy: Haproxy, authority: Authority, nodes: tuple[Stub, Stub]
) -> None:
    for node in nodes:
        node.breaks = True
    status, body = ask(haproxy, authority, "POST", "/v1/projects/p/topics/t:publish")

    assert (status, json.loads(body)["error"]["code"]) == (502, 502)
    assert len(nodes[0].seen + nodes[1].seen) == 1


def test_a_publish_to_a_node_that_is_gone_goes_to_another_without_waiting(
    haproxy: Haproxy, authority: Authority, nodes: tuple[Stub, Stub]
) -> None:
    nodes[0].close()
    began = time.monotonic()

    assert [ask(haproxy, authority, "POST", "/v1/projects/p/topics/t:publish")[1] for _ in range(4)] == ["two"] * 4
    assert time.monotonic() - began < 2


def test_a_reload_refuses_nobody(haproxy: Haproxy, authority: Authority) -> None:
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(ask, haproxy, authority, "GET", "/") for _ in range(100)]
        haproxy.reload()
        asked += [threads.submit(ask, haproxy, authority, "GET", "/") for _ in range(100)]

    assert {each.result()[0] for each in asked} == {200}


def test_nodes_are_asked_by_tls_and_their_certificates_are_checked(tmp_path: Path) -> None:
    trusted, other = Authority(tmp_path / "trusted"), Authority(tmp_path / "other")
    right, wrong = Stub("right"), Stub("wrong")
    ops = Stub("ops")
    for stub, authority in ((right, trusted), (wrong, other)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        signed = authority.sign(stub.name)
        context.load_cert_chain(signed.certificate, signed.key)
        stub.socket = context.wrap_socket(stub.socket, server_side=True)
    backends = [Backend(stub.name, stub.server_port, ops.server_port) for stub in (right, wrong)]
    haproxy = Haproxy(tmp_path, backends, trusted.sign("haproxy").both, trusted.ca)
    try:
        haproxy.start()
        context = ssl.create_default_context(cafile=trusted.ca)
        for _ in range(4):
            client = http.client.HTTPSConnection(*haproxy.endpoint.split(":"), context=context, timeout=10)
            client.request("GET", "/v1/version")
            client.getresponse().read()
            client.close()

        assert right.seen
        assert not wrong.seen
    finally:
        haproxy.stop()
        for stub in (right, wrong, ops):
            stub.close()


def test_googles_clients_are_passed_on_by_tls_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    node = authority.sign("node")
    own, port = ("--cert", str(node.certificate), "--key", str(node.key)), free_port()
    ops = Stub("ops")
    with live_service(tmp_path / "data", *own, "--pubsub-port", str(port)) as service:
        backend = Backend("one", urlsplit(service.base_url).port or 0, ops.server_port, port)
        with Haproxy(tmp_path, [backend], authority.sign("haproxy").both, authority.ca) as haproxy:
            eventually(lambda: haproxy.states() == {"one": "UP"})
            trust = grpc.ssl_channel_credentials(authority.ca.read_bytes())
            bearer = grpc.composite_channel_credentials(trust, grpc.access_token_call_credentials(service.token))
            with grpc.secure_channel(haproxy.pubsub, bearer) as channel:
                ask = channel.unary_unary("/google.pubsub.v1.Publisher/GetTopic")
                with pytest.raises(grpc.RpcError, match="Resource not found"):
                    ask(GetTopicRequest.serialize(GetTopicRequest(topic="projects/none/topics/none")), timeout=20)
    ops.close()
