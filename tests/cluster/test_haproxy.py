"""The haproxy.cfg of deploy/: haproxy before nodes that are not ready, break, or are gone; and its move.cfg."""

import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest
from google.pubsub_v1 import GetTopicRequest

from local_cluster.certificates import Authority
from local_cluster.deployed import haproxy_configuration
from local_cluster.haproxy import Backend, Haproxy, MovingHaproxy, check
from local_cluster.ports import free_port
from tests.cluster.stubs import Stub, stubs
from tests.support.service import live_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.haproxy

PUBLISH = "/v1/projects/p/topics/t:publish"
Ask = Callable[..., tuple[int, str]]  # asks through haproxy: method, path and headers; returns status and body


@pytest.fixture
def nodes() -> Iterator[list[Stub]]:
    with stubs("one", "two") as nodes:
        yield nodes


@pytest.fixture
def haproxy(nodes: list[Stub], authority: Authority, tmp_path: Path) -> Iterator[Haproxy]:
    with Haproxy(tmp_path, [each.backend for each in nodes], authority.sign("haproxy").both) as haproxy:
        wait_until(lambda: all(state == "UP" for state in haproxy.states().values()))
        yield haproxy


@pytest.fixture
def ask(haproxy: Haproxy, authority: Authority) -> Ask:
    return partial(send_request, haproxy, authority)


def send_request(haproxy: Haproxy, authority: Authority, method: str, path: str, **headers: str) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=authority.ca)
    connection = http.client.HTTPSConnection("127.0.0.1", haproxy.port, context=context, timeout=PATIENCE_SECONDS)
    with closing(connection):
        connection.request(method, path, b"{}" if method == "POST" else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_the_deployed_configuration_has_no_fault(tmp_path: Path, authority: Authority) -> None:
    own = tmp_path / "haproxy.cfg"
    text = re.sub(r"node\d\.example", "127.0.0.1", haproxy_configuration())
    text = text.replace("/etc/haproxy/ams.pem", str(authority.sign("here").both))
    own.write_text(text.replace("/etc/haproxy/nodes-ca.pem", str(authority.ca)))

    check(own)


def test_both_nodes_are_asked_and_the_log_has_no_query(haproxy: Haproxy, ask: Ask) -> None:
    answers = {ask("GET", "/v1/projects?key=s3cr3t") for _ in range(4)}
    assert answers == {(200, "one"), (200, "two")}
    wait_until(lambda: haproxy.process.log.read_text().count("GET /v1/projects ") == 4)
    assert "s3cr3t" not in haproxy.process.log.read_text()


def test_a_node_that_is_not_ready_gets_nothing_unless_none_is(haproxy: Haproxy, ask: Ask, nodes: list[Stub]) -> None:
    nodes[0].ready = False
    wait_until(lambda: haproxy.states()["one"] == "DOWN")
    assert {ask("GET", "/")[1] for _ in range(4)} == {"two"}

    nodes[1].ready = False
    wait_until(lambda: set(haproxy.states().values()) == {"DOWN"})
    assert ask("GET", "/")[0] == 200


VERBS = ("pull", "acknowledge", "modifyOffset", "seek")
REPEATED: list[tuple[str, str, dict[str, str]]] = [
    ("GET", "/v1/projects/p/topics", {}), *(("POST", f"/v1/projects/p/subscriptions/s:{verb}", {}) for verb in VERBS),
    ("POST", PUBLISH, {"Idempotency-Key": "k"}),
]  # fmt: skip


def test_what_can_do_no_harm_is_sent_again_when_its_node_dies(ask: Ask, nodes: list[Stub]) -> None:
    nodes[0].breaks = True
    for method, path, headers in REPEATED:
        assert [ask(method, path, **headers) for _ in range(4)] == [(200, "two")] * 4, path
    assert {path for _, path, _ in REPEATED} <= set(nodes[0].seen)


def test_a_publish_in_flight_is_not_sent_again_and_its_error_is_in_the_envelope(ask: Ask, nodes: list[Stub]) -> None:
    for node in nodes:
        node.breaks = True
    status, body = ask("POST", PUBLISH)

    assert (status, json.loads(body)["error"]["code"]) == (502, 502)
    assert len(nodes[0].seen + nodes[1].seen) == 1


def test_a_publish_to_a_node_that_is_gone_goes_to_another(ask: Ask, nodes: list[Stub]) -> None:
    nodes[0].close()
    assert [ask("POST", PUBLISH)[1] for _ in range(4)] == ["two"] * 4


def test_a_reload_refuses_nobody(haproxy: Haproxy, ask: Ask) -> None:
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(ask, "GET", "/") for _ in range(100)]
        haproxy.reload()
        answers += [threads.submit(ask, "GET", "/") for _ in range(100)]

    assert {each.result()[0] for each in answers} == {200}


def test_nodes_are_asked_by_tls_and_their_certificates_are_checked(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    with (stubs("right", authority=authority) as [right], stubs("wrong", authority=other) as [wrong],
          stubs("ops") as [ops]):  # fmt: skip
        backends = [Backend(stub.name, stub.server_port, ops.server_port) for stub in (right, wrong)]
        with Haproxy(tmp_path, backends, authority.sign("haproxy").both, authority.ca) as haproxy:
            for _ in range(4):
                send_request(haproxy, authority, "GET", "/v1/version")

        assert right.seen
        assert not wrong.seen


@pytest.mark.long
def test_googles_clients_are_passed_on_by_tls_too(authority: Authority, tmp_path: Path) -> None:
    node, port = authority.sign("node"), free_port()
    own = ("--cert", str(node.certificate), "--key", str(node.key), "--pubsub-port", str(port))
    with stubs("ops") as [ops], live_service(tmp_path / "data", *own) as service:
        backend = Backend("one", urlsplit(service.base_url).port or 0, ops.server_port, port)
        with Haproxy(tmp_path, [backend], authority.sign("haproxy").both, authority.ca) as haproxy:
            wait_until(lambda: haproxy.states() == {"one": "UP"})
            trust = grpc.ssl_channel_credentials(authority.ca.read_bytes())
            bearer = grpc.composite_channel_credentials(trust, grpc.access_token_call_credentials(service.token))
            with grpc.secure_channel(haproxy.pubsub, bearer) as channel:
                call = channel.unary_unary("/google.pubsub.v1.Publisher/GetTopic")
                request = GetTopicRequest.serialize(GetTopicRequest(topic="projects/none/topics/none"))
                with pytest.raises(grpc.RpcError, match="Resource not found"):
                    call(request, timeout=PATIENCE_SECONDS)


# The unmodified move.cfg: haproxy holds requests between an old service and a new one


@pytest.fixture
def old_stub(authority: Authority) -> Iterator[Stub]:
    with stubs("old", authority=authority) as [old]:
        yield old


@pytest.fixture
def moving_haproxy(old_stub: Stub, authority: Authority, tmp_path: Path) -> Iterator[MovingHaproxy]:
    both = authority.sign("moving").both
    with (stubs("new") as [new],
          MovingHaproxy(tmp_path, old_stub.server_port, authority.ca, new.server_port, both) as running):  # fmt: skip
        yield running


def get(moving: MovingHaproxy, authority: Authority) -> str:
    context = ssl.create_default_context(cafile=authority.ca)
    with urllib.request.urlopen(f"{moving.url}/v1/version", context=context, timeout=PATIENCE_SECONDS) as answer:
        return str(answer.read().decode())


def set_service(moving: MovingHaproxy, value: str) -> None:
    moving.ask(f"set map {moving.map} service {value}")


def test_a_held_request_follows_the_new_map(moving_haproxy: MovingHaproxy, old_stub: Stub, authority: Authority):
    assert get(moving_haproxy, authority) == "old"
    set_service(moving_haproxy, "held")
    with ThreadPoolExecutor(5) as clients:
        asked = [clients.submit(get, moving_haproxy, authority) for _ in range(5)]
        wait_until(lambda: count_connections(moving_haproxy) == 5)
        assert not any(each.done() for each in asked)
        set_service(moving_haproxy, "new")
        assert [each.result() for each in asked] == ["new"] * 5
    assert len(old_stub.seen) == 1
    set_service(moving_haproxy, "old")
    assert get(moving_haproxy, authority) == "old"


def count_connections(moving: MovingHaproxy) -> int:
    [found] = [line for line in moving.ask("show info").splitlines() if line.startswith("CurrConns:")]
    return int(found.split()[1])


def test_a_stop_ends_a_waiting_pull(moving_haproxy: MovingHaproxy, old_stub: Stub, authority: Authority) -> None:
    old_stub.breaks = True
    old_stub.goes_on.clear()
    with ThreadPoolExecutor(1) as client:
        pulling = client.submit(get, moving_haproxy, authority)
        wait_until(lambda: old_stub.seen)
        old_stub.goes_on.set()
        with pytest.raises(urllib.error.HTTPError) as told:
            pulling.result()

    with told.value as answer:
        assert (answer.code, answer.headers["Retry-After"]) == (502, "1")
        assert json.load(answer)["error"]["status"] == "BAD_GATEWAY"
