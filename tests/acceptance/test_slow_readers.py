"""A client that does not read its answer is dropped: what it does not read takes memory."""

import base64
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.service import live_service

pytestmark = pytest.mark.acceptance

PATIENCE = 0.5
"""Seconds a client may read nothing."""


def test_a_client_that_reads_nothing_is_dropped_and_others_are_served(tmp_path: Path) -> None:
    megabyte = base64.b64encode(bytes(1_000_000)).decode()
    with live_service(tmp_path / "data", "--request-seconds", f"{PATIENCE}s") as live:
        base, headers = f"{live.base_url}/v1/projects/P", {"x-api-key": live.token}
        httpx.post(base, headers=headers, json={})
        httpx.put(f"{base}/topics/t", headers=headers)
        httpx.put(f"{base}/subscriptions/s", headers=headers, json={"topic": "projects/P/topics/t"})
        for _ in range(10):
            httpx.post(f"{base}/topics/t:publish", headers=headers, json={"messages": [{"data": megabyte}]})
        where = urlsplit(live.base_url)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((where.hostname, where.port))
            pull = '{"maxMessages": "10"}'
            head = f"POST /v1/projects/P/subscriptions/s:pull HTTP/1.1\r\nHost: x\r\nx-api-key: {live.token}\r\n"
            client.sendall(f"{head}Content-Length: {len(pull)}\r\n\r\n{pull}".encode())
            time.sleep(8 * PATIENCE)

            assert _all_that_comes(client) < 10_000_000
        assert httpx.get(f"{live.base_url}/v1/status").status_code == 200


def _all_that_comes(client: socket.socket) -> int:
    client.settimeout(5)
    size = 0
    try:
        while piece := client.recv(1 << 20):
            size += len(piece)
    except ConnectionResetError:
        return size
    return size
