"""The bench and its tools run. Results are not tested: machines differ."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench import preparing
from bench.callers import Acknowledge, Consume, Lease, Publish, Pull, Work, scripts
from bench.connection import Response, request
from bench.load import Job, run
from bench.processes import Failed, RunningLoad, Service, bare
from bench.publish import raw_appends_per_second, stored_bytes
from bench.soak import Minute, verdict
from bench.tls import calls_per_second, handshake_server
from local_cluster.certificates import Authority

WORK = Publish(["projects/P/topics/a", "projects/P/topics/b"], per_request=3, size=32)
SUB = "projects/P/subscriptions/s"


@pytest.mark.parametrize("work", [
    WORK, Acknowledge([SUB], batch=2), Pull([SUB], messages=3), Lease([SUB], messages=2), Consume([SUB], messages=3),
])  # fmt: skip
def test_every_caller_asks_with_whole_requests(work: Work) -> None:
    [script] = scripts(work, 1, "token")
    step = next(script)
    assert b"".join(step.request).startswith(b"POST /v1/projects/P/")
    assert b"x-api-key: token" in step.request[0]


def test_a_pull_of_too_few_messages_is_no_measurement() -> None:
    [script] = scripts(Pull([SUB], messages=3), 1, "token")
    next(script)
    with pytest.raises(Exception, match="got 0"):
        script.send(Response(200, b'{"receivedMessages":[]}'))


def test_a_load_counts_what_is_answered_and_fails_without_a_server(tmp_path: Path) -> None:
    with bare(tmp_path) as server:
        job = Job(server.url, "token", WORK, connections=4, seconds=0.5, warm_up=0.1, rate=None)
        outcome = RunningLoad(job).outcome()

    assert outcome.messages == 3 * outcome.requests > 0
    assert not outcome.refused
    with pytest.raises(Failed, match="refused"):
        RunningLoad(job).outcome()


class Closing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    left = 5

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        answer = b'{"messageIds":["0","1","2"]}'
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(answer), answer))
        self.left -= 1
        self.close_connection = self.left == 0


def test_a_load_goes_on_when_its_connections_end() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Closing) as server:
        threading.Thread(target=server.serve_forever).start()
        job = Job(f"http://127.0.0.1:{server.server_port}", "token", WORK, 1, seconds=0.5, warm_up=0.1, rate=None)
        outcome = asyncio.run(run(job))
        server.shutdown()

    assert outcome.requests > Closing.left


def test_handshakes_are_measured(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "files")
    with handshake_server(authority.sign("localhost")) as bare_server:
        assert calls_per_second(bare_server.url, authority.ca, 0.05, request("GET", "/", "token")) > 0


@pytest.mark.long
@pytest.mark.embedded("the bytes are those of the embedded engine")
def test_raw_appends_are_as_large_as_what_the_service_stores(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    assert raw_appends_per_second(tmp_path / "raw", writers=3, messages=2, seconds=0.2) > 0
    with Service(tmp_path / "data") as service:
        [topic] = preparing.topics(service, preparing.project(service, "P"), "raw", 1)
        preparing.fill(service, [topic], 1000, per_request=100)
        stored = sum(len(each.read_bytes().rstrip(b"\0")) for each in (tmp_path / "data" / "log").rglob("*.log"))

    assert stored == pytest.approx(10 * stored_bytes(100), rel=0.01)


def test_a_soak_is_judged_by_memory_and_p99() -> None:
    flat = [Minute(1000, 1000, 5.0, 100.0, 50.0, 0)] * 8
    growing = [Minute(1000, 1000, 5.0 * each, 100.0 * each, 50.0, 0) for each in range(1, 9)]
    assert [len(verdict(minutes)) for minutes in (flat, growing, flat[:3])] == [0, 2, 1]
