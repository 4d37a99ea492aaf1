"""A publish with a key, killed at every moment between sending and answer, and sent again: stored once."""

import json
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.service import LiveService, live_service

TRIES = 3
PUBLISH = "/projects/P/topics/t:publish"
FLAGS = ("--min-free-bytes", "0", "--reserve-bytes", "0", "--log-level", "warning")


def client(service: LiveService) -> httpx.Client:
    return httpx.Client(base_url=service.base_url + "/v1", headers={"x-api-key": service.token}, trust_env=False)


def body(number: int) -> dict[str, Any]:
    return {"messages": [{"attributes": {"n": f"{number}-{place}"}} for place in range(3)]}


def key(number: int) -> dict[str, str]:
    return {"idempotency-key": str(number)}


def publish(http: httpx.Client, number: int) -> list[int]:
    answer = http.post(PUBLISH, json=body(number), headers=key(number))
    assert answer.status_code == 200, answer.text
    return [int(each) for each in answer.json()["messageIds"]]


def publish_and_kill(service: LiveService, data: Path, number: int) -> None:
    """Send a publish and kill the service when its record is in the log; nobody waits for the answer."""
    with client(service) as http:
        request = http.build_request("POST", PUBLISH, json=body(number), headers=key(number))
    address = httpx.URL(service.base_url)
    before = stored_bytes(data)
    with socket.create_connection((address.host, address.port)) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        connection.sendall(f"POST {request.url.raw_path.decode()} HTTP/1.1\r\n{head}\r\n".encode() + request.read())
        give_up = time.monotonic() + 10
        while stored_bytes(data) == before:
            assert time.monotonic() < give_up
        service.kill()


def stored_bytes(data: Path) -> int:
    return sum(each.stat().st_size for each in (data / "log").glob("*/*.log"))


@pytest.mark.faults
def test_a_publish_repeated_after_a_kill_is_stored_once(tmp_path: Path) -> None:
    """The service is killed as soon as the record is in its file: before it is answered, or right after."""
    data = tmp_path / "ams-data"
    with live_service(data, *FLAGS) as service, client(service) as http:
        assert http.post("/projects/P", json={}).status_code == 200
        assert http.put("/projects/P/topics/t").status_code == 200
    answered = {}
    for number in range(TRIES):
        with live_service(data, *FLAGS) as service, client(service) as http:
            answered |= {earlier: publish(http, earlier) for earlier in range(number)}
            publish_and_kill(service, data, number)
    with live_service(data, *FLAGS) as service, client(service) as http:
        ids = {number: publish(http, number) for number in range(TRIES)}
        stored = [json.loads(line) for line in http.get("/projects/P/topics/t:read").text.splitlines()]

    assert [each["attributes"]["n"] for each in stored] == [f"{n}-{place}" for n in range(TRIES) for place in range(3)]
    assert [each["offset"] for each in stored] == [each for number in range(TRIES) for each in ids[number]]
    assert all(ids[number] == first for number, first in answered.items())
