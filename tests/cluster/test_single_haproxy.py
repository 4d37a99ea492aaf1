"""The unmodified single.cfg of deploy/: haproxy before one service, over connections shared by all clients."""

import contextlib
import dataclasses
import http.client
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from ams.core.settings import Settings
from local_cluster.certificates import Authority
from local_cluster.haproxy import SingleHaproxy, check
from local_cluster.ports import free_port
from tests.cluster.stubs import Stub, stubs
from tests.http import test_protocol as repaired
from tests.support.events import next_event
from tests.support.packets import table
from tests.support.served import SERVICE_TOKEN, InProcessService, in_process_service
from tests.support.waiting import wait_until

pytestmark = pytest.mark.haproxy

SILENCE = 0.5  # seconds after which nothing more is expected of a connection on which we say nothing more
SOON = 60.0
SHARED = 20
A_MESSAGE = {"messages": [{"data": "aGk="}]}

# The tests against request smuggling, here through haproxy.
test_http_1_0 = repaired.test_a_request_of_http_1_0_needs_no_host
test_chunked = repaired.test_chunked_may_be_written_in_any_case
test_any_bytes = repaired.test_no_bytes_make_the_service_fail
test_offers = repaired.test_an_offer_to_upgrade_is_ignored_however_it_is_spelt
test_offers_in_packets = repaired.test_an_offer_to_upgrade_may_come_in_two_packets
test_requests_behind_offers = repaired.test_bytes_behind_an_offer_to_upgrade_are_never_taken_for_a_request
test_lines_of_a_body = repaired.test_a_body_that_looks_like_an_offer_stays_whole
test_offers_between_others = repaired.test_a_request_that_offers_to_upgrade_may_stand_between_others
test_a_body_announced_too_large = repaired.test_a_body_announced_too_large_is_refused_before_it_comes


class Line(ssl.SSLSocket):
    """A TLS connection: TLS cannot be half-closed, so it is read until there is silence."""

    is_answered = False  # in any case: then the silence counts only after the first byte
    _is_done = False

    def shutdown(self, how: int) -> None:
        self._is_done = True
        if not self.is_answered:
            self.settimeout(SILENCE)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            came = super().recv(buflen, flags)
        except TimeoutError:
            if self._is_done:
                return b""
            raise
        if self._is_done:
            self.settimeout(SILENCE)
        return came


@pytest.fixture(autouse=True)
def expect_answers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "is_answered", request.function is test_lines_of_a_body)


@dataclasses.dataclass(frozen=True)
class ProxiedService(InProcessService):
    """The service through haproxy, with clients that come from `source`."""

    haproxy: SingleHaproxy
    context: ssl.SSLContext
    data: Path
    source: str = "127.0.0.1"

    def connect(self, seconds: float) -> socket.socket:
        there = ("127.0.0.1", self.haproxy.port)
        plain = socket.create_connection(there, timeout=seconds, source_address=(self.source, 0))
        return self.context.wrap_socket(plain, server_hostname="localhost")

    def ask(self, method: str, path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = self.connect(SOON)
        with contextlib.closing(connection):
            connection.request(method, path, b"{}", {"x-api-key": SERVICE_TOKEN} | headers)
            answer = connection.getresponse()
            answer.read()
            return answer


@pytest.fixture(scope="module")
def strict_service(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[ProxiedService]:
    folder = tmp_path_factory.mktemp("single")
    context = ssl.create_default_context(cafile=authority.ca)
    context.sslsocket_class = Line
    with in_process_service(folder / "data", max_body_bytes=100_000, trusted_proxies="127.0.0.1") as service:
        service.ask("POST", "/projects/P", {})
        service.ask("PUT", "/projects/P/topics/T")
        operations = int(service.run.operations_url.rpartition(":")[2])
        certificate = authority.sign("single").both
        with SingleHaproxy(folder, service.address[1], operations, certificate, body_bytes=100_000) as haproxy:
            own = {each.name: getattr(service, each.name) for each in dataclasses.fields(service)}
            yield ProxiedService(**own, haproxy=haproxy, context=context, data=folder / "data")


def metrics_text(haproxy: SingleHaproxy) -> str:
    return httpx.get(f"http://127.0.0.1:{haproxy.figures_port}/metrics", trust_env=False, timeout=SOON).text


def figures(haproxy: SingleHaproxy) -> Mapping[str, float]:
    text = metrics_text(haproxy)
    found = re.findall(r'^haproxy_server_(\w+)\{proxy="ams",server="ams"(?:,state="UP")?\} (\S+)$', text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_the_configuration_has_no_fault_and_fits_the_settings_of_the_service(tmp_path: Path, authority: Authority):
    haproxy, usual = SingleHaproxy(tmp_path, 1, 1, authority.sign("here").both), Settings()
    text = haproxy.configuration.read_text()
    names = set(re.findall(r"presetenv (\w+)", text))
    given = dict(re.findall(r'presetenv PROXY_(\w+) "?([^"\n]+)', text))
    longest_pull = 8

    check(haproxy.configuration, haproxy.process.environment)
    assert set(haproxy.process.environment) <= names == set(re.findall(r"\$\{(\w+)\}", text))
    assert given["SERVICE"] == f"{usual.host}:{usual.port}"
    assert int(given["SERVICE_OPERATIONS"]) == usual.ops_port
    assert int(given["BODY_BYTES"]) == usual.max_body_bytes
    assert int(given["CONNECTIONS"]) < usual.max_connections
    assert int(*re.findall(r"timeout server (\d+)s", text)) > longest_pull


def test_clients_that_connect_for_each_call_share_connections_to_the_service(strict_service: ProxiedService) -> None:
    before = figures(strict_service.haproxy)
    for _ in range(SHARED):
        assert strict_service.ask("GET", "/v1/version").status == 200
    after = figures(strict_service.haproxy)

    assert after["connection_reuses_total"] - before["connection_reuses_total"] >= SHARED - 1
    assert after["status"] == 1


@pytest.mark.parametrize("name", table(b"", b""))
def test_after_any_bytes_the_next_clients_get_their_own_answers(strict_service: ProxiedService, name: str) -> None:
    login = b"x-api-key: %b\r\n" % SERVICE_TOKEN.encode()
    has_printed = table(b"/v1/projects/P/topics/T:publish", b'{"messages":[{"data":"aGVsbG8="}]}', login)[name]
    for end in (len(has_printed), len(has_printed) - 1, has_printed.find(b"\r\n\r\n") + 3):
        with strict_service.connect(SOON) as client:
            client.sendall(has_printed[:end])
            client.sendall(has_printed[end:])
            client.shutdown(socket.SHUT_WR)
            answer = client.recv(65536)
        assert not answer or re.match(rb"HTTP/1.1 [24]\d\d ", answer), answer
        for victim in range(2):
            answered = strict_service.ask("GET", "/v1/projects/P/topics/T", **{"x-request-id": f"{end}-{victim}"})
            assert (answered.status, answered.headers["x-request-id"]) == (200, f"{end}-{victim}")


@pytest.mark.parametrize("size", [10, 60_000])
def test_a_client_that_asks_before_it_sends_a_body_is_told_to_go_on(strict_service: ProxiedService, size: int) -> None:
    body = json.dumps({"messages": [{"data": "aaaa" * (size // 4)}]}).encode()
    head = b"POST /v1/projects/P/topics/T:publish HTTP/1.1\r\nHost: x\r\nx-api-key: %b\r\nConnection: close\r\n"
    head += b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with strict_service.connect(SOON) as client:
        client.sendall(head % (SERVICE_TOKEN.encode(), len(body)))
        assert client.recv(65536).startswith(b"HTTP/1.1 100 ")
        client.sendall(body)
        answer = repaired.receive_all(client)

    assert b"HTTP/1.1 200 " in answer
    assert b"messageIds" in answer


def test_the_service_knows_clients_by_their_own_addresses(strict_service: ProxiedService) -> None:
    client = dataclasses.replace(strict_service, source="127.0.0.9")

    assert client.ask("POST", "/v1/projects/FROM", **{"X-Forwarded-For": "192.0.2.1"}).status == 200

    events = [json.loads(line) for line in (strict_service.data / "audit.jsonl").read_text().splitlines()]
    [made] = [each for each in events if each["resource"] == "/projects/FROM"]
    assert made["address"] == "127.0.0.9"


def test_the_log_has_no_query(strict_service: ProxiedService) -> None:
    assert strict_service.ask("GET", "/v1/version?key=s3cr3t").status == 200
    wait_until(lambda: strict_service.haproxy.process.has_printed("GET /v1/version "))
    assert not strict_service.haproxy.process.has_printed("s3cr3t")


def test_a_pull_is_retried_and_no_publish(strict_service: ProxiedService, tmp_path: Path, authority: Authority) -> None:
    with (
        stubs("stub") as [stub],
        SingleHaproxy(tmp_path, stub.server_port, stub.server_port, authority.sign("broken").both) as haproxy,
    ):
        client = dataclasses.replace(strict_service, haproxy=haproxy)
        stub.breaks = True
        assert client.ask("POST", "/v1/projects/p/topics/t:publish").status == 502
        assert len(stub.seen) == 1
        assert client.ask("POST", "/v1/projects/p/subscriptions/s:pull").status == 502
        assert len(stub.seen) > 2

        stub.breaks = stub.ready = False
        wait_until(lambda: figures(haproxy)["status"] == 0)
        assert client.ask("GET", "/v1/version").status == 200


def test_a_starting_service_is_waited_for(strict_service: ProxiedService, tmp_path: Path, authority: Authority) -> None:
    port = free_port()
    with SingleHaproxy(tmp_path, port, port, authority.sign("later").both) as haproxy:
        client = dataclasses.replace(strict_service, haproxy=haproxy)
        statuses: list[int] = []
        asking = threading.Thread(target=lambda: statuses.append(client.ask("GET", "/v1/version").status))
        asking.start()
        asked = re.compile(r'^haproxy_backend_current_sessions\{proxy="ams\w*"\} [1-9]', re.MULTILINE)
        wait_until(lambda: asked.search(metrics_text(haproxy)))
        stub = Stub("later", port)
        asking.join()
        stub.close()
        assert statuses == [200]

        # Until haproxy sees that the stub is gone, it reports a missing answer.
        refused = wait_until(lambda: (answer := client.ask("GET", "/v1/version")).status == 503 and answer)
        assert refused
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["content-type"] == "application/json; charset=utf-8"


def test_a_live_view_comes_through_an_event_at_a_time_and_its_client_may_leave(strict_service: ProxiedService) -> None:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = strict_service.connect(SOON)
    path = "/v1/projects/P:watch?topics=T&tail=T"
    connection.request("GET", path, headers={"x-api-key": SERVICE_TOKEN, "Accept-Encoding": "gzip"})
    with contextlib.closing(connection), connection.getresponse() as answer:
        assert next_event(answer)[0] == "counts"
        assert strict_service.call("POST", "/projects/P/topics/T:publish", A_MESSAGE).status_code == 200

        assert next_event(answer, "message")[1]["message"]["data"] == "aGk="
        assert strict_service.run.service.live.views == 1

    def is_gone() -> bool:  # haproxy notices when it sends something
        strict_service.call("POST", "/projects/P/topics/T:publish", A_MESSAGE)
        return not strict_service.run.service.live.views

    wait_until(is_gone)
