"""A client that does not read its answer is dropped: what it does not read takes memory."""

import base64
import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.service import LiveService, live_service

pytestmark = pytest.mark.acceptance

PATIENCE = 0.5
"""Seconds a client may read nothing."""


TLS = ("--tls-self-signed",)
"""What is told of a client that does not read differs with TLS."""


@pytest.mark.parametrize(("what", "flags"), [("pull", ()), ("pull", TLS), ("read", TLS)])
def test_a_client_that_reads_nothing_is_dropped_and_others_are_served(
    tmp_path: Path, what: str, flags: tuple[str, ...]
) -> None:
    with live_service(tmp_path / "data", "--request-seconds", f"{PATIENCE}s", *flags) as live:
        furnish(live, "P")
        with connected(live, buffer=4096) as client:
            client.sendall(REQUESTS[what](live))
            time.sleep(4 * PATIENCE)

            assert _all_that_comes(client) < 10_000_000
        assert httpx.get(f"{live.base_url}/v1/status", verify=False).status_code == 200


@pytest.mark.parametrize(("what", "flags"), [("pull", ()), ("pull", TLS), ("read as Arrow", TLS), ("read", ())])
def test_answers_that_many_clients_do_not_read_stay_within_a_budget_and_other_projects_are_served(
    tmp_path: Path, what: str, flags: tuple[str, ...]
) -> None:
    with live_service(tmp_path / "data", "--max-unread-bytes", "32MiB", *flags) as live:
        for project in "PQ":
            furnish(live, project)
        before = _memory(live.process.pid)
        with contextlib.ExitStack() as clients:
            for _ in range(60):
                client = clients.enter_context(connected(live, buffer=4096))
                client.sendall(2 * REQUESTS[what](live))
            assert _eventually(lambda: ask(live, "P/subscriptions/s:pull", PULL).status_code == 503)
            refused, served = (ask(live, f"{project}/subscriptions/s:pull", PULL) for project in "PQ")

            assert "wait to be read" in refused.json()["error"]["message"]
            assert served.status_code == 200
            assert served.json()["receivedMessages"]
            assert _memory(live.process.pid) - before < 300
        assert _eventually(lambda: ask(live, "P/subscriptions/s:pull", PULL).status_code == 200)


def test_half_sent_bodies_of_one_project_do_not_keep_others_from_publishing(tmp_path: Path) -> None:
    with live_service(tmp_path / "data", "--max-buffered-bytes", "32MiB") as live:
        for project in "PQ":
            furnish(live, project)
        member = {"projects": [{"project": "Q", "roles": ["project_admin"]}]}
        users = f"{live.base_url}/v1/users/u"
        other = httpx.post(users, headers={"x-api-key": live.token}, json=member, timeout=PATIENT).json()["token"]
        head = f"POST /v1/projects/P/topics/t:publish HTTP/1.1\r\nHost: x\r\nx-api-key: {live.token}\r\n"
        with contextlib.ExitStack() as clients:
            for _ in range(3):
                client = clients.enter_context(connected(live))
                client.sendall(f"{head}Content-Length: {12 << 20}\r\n\r\n".encode() + b" " * (21 << 19))
            time.sleep(PATIENCE)

            assert [ask(live, "Q/topics/t:publish", PUBLISH, token=other).status_code for _ in range(5)] == [200] * 5


PATIENT = 30.0
"""Seconds for an answer on a busy machine."""
PULL = b'{"maxMessages": "10"}'
PUBLISH = b'{"messages": [{"data": "%b"}]}' % base64.b64encode(bytes(1_000_000))


def furnish(live: LiveService, project: str) -> None:
    """Have a project with topic t, subscription s, and 13 MB of messages."""
    base, headers = f"{live.base_url}/v1/projects/{project}", {"x-api-key": live.token}
    httpx.post(base, headers=headers, json={}, timeout=PATIENT, verify=False)
    httpx.put(f"{base}/topics/t", headers=headers, timeout=PATIENT, verify=False)
    topic = {"topic": f"projects/{project}/topics/t"}
    httpx.put(f"{base}/subscriptions/s", headers=headers, json=topic, timeout=PATIENT, verify=False)
    for _ in range(10):
        assert ask(live, f"{project}/topics/t:publish", PUBLISH).status_code == 200


def ask(live: LiveService, path: str, body: bytes, token: str = "") -> httpx.Response:
    headers = {"x-api-key": token or live.token}
    return httpx.post(
        f"{live.base_url}/v1/projects/{path}", headers=headers, content=body, timeout=PATIENT, verify=False
    )


def pull(live: LiveService) -> bytes:
    head = f"POST /v1/projects/P/subscriptions/s:pull HTTP/1.1\r\nHost: x\r\nx-api-key: {live.token}\r\n"
    return f"{head}Content-Length: {len(PULL)}\r\n\r\n".encode() + PULL


def read(live: LiveService, accept: str = "application/x-ndjson") -> bytes:
    head = f"GET /v1/projects/P/topics/t:read HTTP/1.1\r\nHost: x\r\nx-api-key: {live.token}\r\n"
    return f"{head}Accept: {accept}\r\n\r\n".encode()


REQUESTS: dict[str, Callable[[LiveService], bytes]] = {
    "pull": pull,
    "read": read,
    "read as Arrow": lambda live: read(live, "application/vnd.apache.arrow.stream"),
}


def connected(live: LiveService, buffer: int | None = None) -> socket.socket:
    where = urlsplit(live.base_url)
    client = socket.socket()
    if buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.settimeout(PATIENT)
    client.connect((where.hostname, where.port))
    if where.scheme == "http":
        return client
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(client)


def _all_that_comes(client: socket.socket) -> int:
    client.settimeout(5)
    size = 0
    try:
        while piece := client.recv(1 << 20):
            size += len(piece)
    except (ConnectionResetError, ssl.SSLError):
        return size
    return size


def _memory(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1024


def _eventually(holds: Callable[[], bool]) -> bool:
    for _ in range(200):
        if holds():
            return True
        time.sleep(0.02)
    return False
