"""A service that is told by signals: SIGHUP, and SIGTERM while clients linger."""

import signal
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.service import LiveService, live_service

pytestmark = [pytest.mark.acceptance, pytest.mark.long]


def connected(live: LiveService) -> ssl.SSLSocket:
    where = urlsplit(live.base_url)
    plain = socket.create_connection((where.hostname or "", where.port or 0), timeout=60)
    return ssl.create_default_context(cafile=str(live.ca)).wrap_socket(plain, server_hostname="localhost")


def request(live: LiveService, line: str, body: str = "") -> bytes:
    head = [f"{line} HTTP/1.1", "Host: localhost", f"x-api-key: {live.token}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", body]).encode()


def test_sighup_without_a_certificate_changes_nothing_and_sigterm_waits_for_no_client(tmp_path: Path) -> None:
    """An idle one over TLS does not hold up a stop; a pull that waits is answered."""
    with (
        live_service(tmp_path / "data", "--tls-self-signed", "--pull-wait", "3s") as live,
        connected(live) as idle,
        connected(live) as client,
    ):
        live.process.send_signal(signal.SIGHUP)
        idle.sendall(request(live, "GET /v1/status"))
        assert idle.recv(2000).startswith(b"HTTP/1.1 200")
        for line, body in (
            ("POST /v1/projects/P", "{}"),
            ("PUT /v1/projects/P/topics/t", "{}"),
            ("PUT /v1/projects/P/subscriptions/s", '{"topic": "projects/P/topics/t"}'),
        ):
            client.sendall(request(live, line, body))
            assert client.recv(2000).startswith(b"HTTP/1.1 200")
        client.sendall(request(live, "POST /v1/projects/P/subscriptions/s:pull", "{}"))
        idle.sendall(request(live, "GET /v1/status"))
        assert idle.recv(2000).startswith(b"HTTP/1.1 200")  # so the pull has come, too

        live.process.send_signal(signal.SIGTERM)

        assert client.recv(2000).endswith(b'{"receivedMessages":[]}')
        assert live.process.wait(timeout=60) == 0
    assert "Traceback" not in (tmp_path / "data.stderr").read_text()
