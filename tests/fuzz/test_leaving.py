"""Clients of a running service that leave at any moment: nothing that was acknowledged is lost, and nothing is left."""

import base64
import json
import random
import re
import socket
import struct
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.fuzz.campaign import furnish
from tests.support.service import LiveService, live_service

pytestmark = pytest.mark.acceptance

CLIENTS = 400
SECONDS = 10
_RESET = struct.pack("ii", 1, 0)
"""Makes a socket that is closed end its connection at once."""
_TROUBLE = re.compile("Traceback|never awaited|destroyed but|not handled|ResourceWarning")


def said(service: LiveService, path: str, body: object) -> bytes:
    text = json.dumps(body).encode()
    head = f"POST /v1/projects/P/{path} HTTP/1.1\r\nHost: x\r\nx-api-key: {service.token}\r\n"
    return f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text


def received(connection: socket.socket, count: int) -> bytes:
    came = b""
    while came.count(b"HTTP/1.1 200") < count or not came.endswith(b"}"):
        part = connection.recv(2**16)
        if not part:
            break
        came += part
    return came


def test_clients_that_leave_at_any_moment_lose_nothing(tmp_path: Path) -> None:
    chance, known = random.Random(4), {}
    flags = ("--min-free-bytes", "0", "--reserve-bytes", "0", "--pull-wait", "0.1")
    with live_service(tmp_path / "ams-data", *flags, environment={"PYTHONWARNINGS": "always"}) as service:
        furnish(service)
        url = urlsplit(service.base_url)
        assert url.hostname
        assert url.port
        for number in range(CLIENTS):
            data = base64.b64encode(b"%d " % number * chance.choice([1, 1, 9000])).decode()
            publish = said(service, "topics/T:publish", {"messages": [{"data": data}]})
            others = [
                said(service, "subscriptions/S:pull", {"maxMessages": chance.choice(["1", "500"])}),
                said(service, "subscriptions/S:acknowledge", {"ackIds": ["projects/P/subscriptions/S:0"]}),
                publish,
            ]
            with socket.create_connection((url.hostname, url.port), SECONDS) as connection:
                connection.sendall(publish)
                if chance.random() < 0.5:
                    for each in json.loads(received(connection, 1).rpartition(b"\r\n\r\n")[2])["messageIds"]:
                        known[each] = data
                rest = b"".join(chance.choices(others, k=3))
                connection.sendall(rest[: chance.randrange(len(rest))])
                if chance.random() < 0.5:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        stored = everything(service)
        assert service.stop() == 0

    assert len(known) > CLIENTS / 3
    assert {each: stored[each] for each in known} == known
    assert not _TROUBLE.search((tmp_path / "ams-data.stderr").read_text())


def everything(service: LiveService) -> dict[str, str]:
    """Return the data of all messages by their ids."""
    stored: dict[str, str] = {}
    headers = {"x-api-key": service.token}
    with httpx.Client(base_url=f"{service.base_url}/v1", headers=headers, trust_env=False) as http:
        http.put("/projects/P/subscriptions/All", json={"topic": "projects/P/topics/T"}).raise_for_status()
        http.post("/projects/P/subscriptions/All:modifyOffset", json={"offset": 0}).raise_for_status()
        while True:
            asked = {"maxMessages": "500", "returnImmediately": "true"}
            found = http.post("/projects/P/subscriptions/All:pull", json=asked).json()["receivedMessages"]
            if not found:
                return stored
            stored |= {each["message"]["messageId"]: each["message"]["data"] for each in found}
            ids = {"ackIds": [each["ackId"] for each in found]}
            http.post("/projects/P/subscriptions/All:acknowledge", json=ids).raise_for_status()
