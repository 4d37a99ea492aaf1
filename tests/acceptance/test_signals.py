"""Being told: SIGTERM with clients that linger, SIGHUP, and offers the service does not take."""

import signal
import socket
import ssl
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.service import LiveService, live_service

pytestmark = pytest.mark.acceptance


def connected(live: LiveService) -> socket.socket:
    where = urlsplit(live.base_url)
    return socket.create_connection((where.hostname or "", where.port or 0), timeout=10)


def request(live: LiveService, line: str, *headers: str, body: str = "") -> bytes:
    head = [line, "Host: localhost", f"x-api-key: {live.token}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*head, "", body]).encode()


def test_an_idle_tls_client_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    with live_service(tmp_path / "data", "--tls-self-signed") as live:
        context = ssl.create_default_context(cafile=str(live.ca))
        with context.wrap_socket(connected(live), server_hostname="localhost") as client:
            client.sendall(request(live, "GET /v1/status HTTP/1.1"))
            assert client.recv(100).startswith(b"HTTP/1.1 200")

            started = time.monotonic()
            assert live.stop() == 0

    assert time.monotonic() - started < 6


def test_pulls_that_wait_are_answered_at_a_stop(tmp_path: Path) -> None:
    with live_service(tmp_path / "data") as live, connected(live) as client:
        for line, body in (
            ("POST /v1/projects/P HTTP/1.1", "{}"),
            ("PUT /v1/projects/P/topics/t HTTP/1.1", "{}"),
            ("PUT /v1/projects/P/subscriptions/s HTTP/1.1", '{"topic": "projects/P/topics/t"}'),
        ):
            client.sendall(request(live, line, body=body))
            assert client.recv(2000).startswith(b"HTTP/1.1 200")
        client.sendall(request(live, "POST /v1/projects/P/subscriptions/s:pull HTTP/1.1", body="{}"))
        time.sleep(0.3)

        live.process.send_signal(signal.SIGTERM)

        assert client.recv(2000).endswith(b'{"receivedMessages":[]}')
        assert live.process.wait(timeout=15) == 0
    assert "Traceback" not in (tmp_path / "data.stderr").read_text()


def test_sighup_without_a_certificate_changes_nothing(tmp_path: Path) -> None:
    with live_service(tmp_path / "data") as live, connected(live) as client:
        live.process.send_signal(signal.SIGHUP)
        client.sendall(request(live, "GET /v1/status HTTP/1.1"))

        assert client.recv(100).startswith(b"HTTP/1.1 200")


def test_an_offer_to_upgrade_is_not_taken_and_costs_nothing(tmp_path: Path) -> None:
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
    with live_service(tmp_path / "data") as live, connected(live) as client:
        client.sendall(request(live, "POST /v1/projects/P HTTP/1.1", *offer, body='{"description": "kept"}'))

        assert b'"description":"kept"' in client.recv(2000)
