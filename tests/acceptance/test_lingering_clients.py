"""Lingering clients: one that does not read its answer is dropped, and a stop does not wait for silent ones."""

import base64
import contextlib
import json
import os
import signal
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from bench.kernel import anonymous_memory
from local_cluster.ports import free_port
from tests.support.service import LiveService, live_service, make_subscription
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

TLS = ("--tls-self-signed",)  # what is told of a client that does not read differs with TLS


@pytest.mark.parametrize(("what", "flags"), [("pull", TLS), ("read", ())])
def test_who_reads_nothing_is_dropped_and_others_are_served(tmp_path: Path, what: str, flags: tuple[str, ...]) -> None:
    with live_service(tmp_path / "data", *flags) as live, live.http() as http:
        create_backlog(http, "P")  # with more time than there is afterwards
    with live_service(tmp_path / "data", "--request-seconds", "0.5s", *flags) as live, live.http() as http:
        with small_buffer_connection(live) as client:
            client.sendall(REQUESTS[what](live))
            wait_until(lambda: not is_kept(client))

            assert all_that_comes(client) < 10_000_000
        assert http.get("/status").status_code == 200


@pytest.mark.parametrize(("what", "flags"), [("pull", TLS), ("read as Arrow", ())])
def test_unread_answers_stay_in_budget_and_others_are_served(tmp_path: Path, what: str, flags: tuple[str, ...]) -> None:
    # Nobody is dropped for what they do not read until the test is over.
    limits = "--max-unread-bytes", "32MiB", "--request-seconds", "600s"
    with live_service(tmp_path / "data", *limits, *flags) as live, live.http() as http:

        def pull(project: str) -> httpx.Response:
            return http.post(f"/projects/{project}/subscriptions/s:pull", json=PULL)

        for project in "PQ":
            create_backlog(http, project)
        before = anonymous_memory(live.process.pid)
        with contextlib.ExitStack() as clients:
            for _ in range(60):
                clients.enter_context(small_buffer_connection(live)).sendall(2 * REQUESTS[what](live))
            wait_until(lambda: pull("P").status_code == 503)
            refused, served = pull("P"), pull("Q")

            assert "wait to be read" in refused.json()["error"]["message"]
            assert served.status_code == 200, served.text
            assert served.json()["receivedMessages"]
            assert anonymous_memory(live.process.pid) - before < 300 << 20
        wait_until(lambda: pull("P").status_code == 200)


PULL = {"maxMessages": "10"}
PUBLISH = {"messages": [{"data": base64.b64encode(bytes(1_000_000)).decode()}]}


def create_backlog(client: httpx.Client, project: str) -> None:
    client.post(f"/projects/{project}", json={}).raise_for_status()
    client.put(f"/projects/{project}/topics/t").raise_for_status()
    topic = {"topic": f"projects/{project}/topics/t"}
    client.put(f"/projects/{project}/subscriptions/s", json=topic).raise_for_status()
    for _ in range(10):
        client.post(f"/projects/{project}/topics/t:publish", json=PUBLISH).raise_for_status()


def request(live: LiveService, line: str, body: str = "", accept: str = "*/*") -> bytes:
    head = [f"{line} HTTP/1.1", "Host: x", f"x-api-key: {live.token}", f"Accept: {accept}"]
    return "\r\n".join([*head, f"Content-Length: {len(body)}", "", body]).encode()


READ = "GET /v1/projects/P/topics/t:read"
REQUESTS: dict[str, Callable[[LiveService], bytes]] = {
    "pull": lambda live: request(live, "POST /v1/projects/P/subscriptions/s:pull", json.dumps(PULL)),
    "read": lambda live: request(live, READ, accept="application/x-ndjson"),
    "read as Arrow": lambda live: request(live, READ, accept="application/vnd.apache.arrow.stream"),
}


def small_buffer_connection(live: LiveService) -> socket.socket:
    """Return a connection with a small receive buffer."""
    where, client = urlsplit(live.base_url), socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(PATIENCE_SECONDS)
    client.connect((where.hostname, where.port))
    if where.scheme == "http":
        return client
    return ssl.create_default_context(cafile=live.ca).wrap_socket(client, server_hostname="localhost")


def is_kept(client: socket.socket) -> bool:
    """Return whether the service has its side of a connection open; unread bytes may remain after a close."""
    ports = [f":{address[1]:04X}" for address in (client.getpeername(), client.getsockname())]
    lines = [each.split() for each in Path("/proc/net/tcp").read_text().splitlines()]
    return any(line[1].endswith(ports[0]) and line[2].endswith(ports[1]) and line[3] == "01" for line in lines)


def all_that_comes(client: socket.socket) -> int:
    size = 0
    with contextlib.suppress(ConnectionResetError, ssl.SSLError):
        while piece := client.recv(1 << 20):
            size += len(piece)
    return size


def test_sighup_without_a_certificate_changes_nothing_and_sigterm_waits_for_no_client(tmp_path: Path) -> None:
    """An idle TLS connection does not delay a stop; a waiting pull is answered."""
    with (
        live_service(tmp_path / "data", "--tls-self-signed", "--pull-wait", "3s") as live,
        small_buffer_connection(live) as idle, small_buffer_connection(live) as client,
    ):  # fmt: skip
        live.process.send_signal(signal.SIGHUP)
        idle.sendall(request(live, "GET /v1/status"))
        assert idle.recv(2000).startswith(b"HTTP/1.1 200")
        with live.http() as http:
            make_subscription(http)
        client.sendall(request(live, "POST /v1/projects/P/subscriptions/S:pull", "{}"))
        idle.sendall(request(live, "GET /v1/status"))
        assert idle.recv(2000).startswith(b"HTTP/1.1 200")  # so the pull has come, too

        live.process.send_signal(signal.SIGTERM)

        assert client.recv(2000).endswith(b'{"receivedMessages":[]}')
        assert live.process.wait(timeout=60) == 0
    assert "Traceback" not in (tmp_path / "data.stderr").read_text()


@pytest.mark.parametrize("tls", [(), TLS])
def test_silent_connections_leave_files_for_the_log_and_give_their_memory_back(tmp_path: Path, tls: tuple[str, ...]):
    few_files, operations = ("sh", "-c", 'ulimit -n 512; exec "$@"', "sh"), free_port()
    flags = ("--ops-port", str(operations), *tls)
    with live_service(tmp_path / "data", *flags, tracer=few_files) as live, live.http() as http:
        make_subscription(http)
        quotas = http.get("/projects/P:quotas").json()["quotas"]
        assert [each["share"] <= 64 for each in quotas if each["name"] == "connections"] == [True]  # half of the port's
        port, memory = urlsplit(live.base_url).port or 0, [anonymous_memory(live.process.pid)]
        for turn in range(4):
            with contextlib.ExitStack() as silent:
                for where, count in ((port, 450), (operations, 150)):
                    for number in range(count):
                        source = (f"127.0.0.{2 + number % 20}", 0)
                        silent.enter_context(socket.create_connection(("127.0.0.1", where), 60, source))
                wait_until(lambda: open_files(live) > 128 + 128)  # all that the ports take
                for number in range(20):  # each topic has files of its own
                    topic = f"/projects/P/topics/t{turn}-{number}"
                    http.put(topic).raise_for_status()
                    http.post(f"{topic}:publish", json={"messages": [{"data": "aGk="}]}).raise_for_status()
            wait_until(lambda: open_files(live) < 128)
            memory.append(anonymous_memory(live.process.pid))

    # Handshakes leave gaps, which fill up within some turns; all of three turns would be 20 MB.
    assert memory[-1] - memory[1] < (10 if tls else 4) << 20
    assert "Too many open files" not in (tmp_path / "data.stderr").read_text()


def open_files(live: LiveService) -> int:
    return len(os.listdir(f"/proc/{live.process.pid}/fd"))
