import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.client import Client, wire
from ams.client.errors import ClientError, InvalidInput, NotAms, NotFound, Overloaded, Unreachable
from tests.client.stub import Stub, stub_server

TOKEN = "f" * 64
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stub_server() as stub:
        yield stub


def test_a_call_carries_the_token_and_returns_the_answer_read(stub: Stub) -> None:
    stub.body = b'{"messageIds": ["0"]}'

    with Client(stub.url, TOKEN) as client:
        published = client.call(wire.publish("P", "T", [wire.message(b"hi")]))

    assert published.message_ids == ["0"]
    [(method, path, headers, body)] = stub.requests
    assert (method, path, body) == ("POST", "/v1/projects/P/topics/T:publish", b'{"messages":[{"data":"aGk="}]}')
    assert headers["x-api-key"] == TOKEN


def test_queries_are_encoded(stub: Stub) -> None:
    stub.body = b'{"topics": [], "nextPageToken": "", "totalSize": 0}'

    with Client(stub.url) as client:
        client.call(wire.list_topics("P", page_token="a+b/c="))

    assert stub.requests[0][1] == "/v1/projects/P/topics?pageToken=a%2Bb%2Fc%3D"


def test_without_a_token_no_header_is_sent(stub: Stub) -> None:
    with Client(stub.url) as client:
        client.call(wire.get_status())

    assert "x-api-key" not in stub.requests[0][2]


def test_connections_are_kept_between_calls(stub: Stub) -> None:
    with Client(stub.url) as client:
        for _ in range(5):
            client.call(wire.get_status())

    assert (len(stub.requests), stub.connections) == (5, 1)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_an_endpoint_may_be_written_with_or_without_the_version(stub: Stub, suffix: str) -> None:
    with Client(stub.url + suffix) as client:
        client.call(wire.get_status())

    assert stub.requests[0][1] == "/v1/status"


def test_an_error_envelope_is_raised_as_its_error(stub: Stub) -> None:
    stub.status, stub.body = 404, b'{"error": {"code": 404, "message": "Topic doesn\'t exist", "status": "NOT_FOUND"}}'

    with Client(stub.url) as client, pytest.raises(NotFound, match="Topic doesn't exist"):
        client.call(wire.get_topic("P", "T"))


def test_a_busy_service_says_when_to_come_again(stub: Stub) -> None:
    stub.status, stub.headers = 503, {"retry-after": "2"}

    with Client(stub.url) as client, pytest.raises(Overloaded) as raised:
        client.call(wire.get_status())

    assert raised.value.retry_after == "2"


@pytest.mark.parametrize(("status", "body"), [(200, b"<html>"), (201, b"{}"), (204, b""), (301, b"")])
def test_what_does_not_answer_as_ams_is_told_apart(stub: Stub, status: int, body: bytes) -> None:
    stub.status, stub.body = status, body

    with Client(stub.url) as client, pytest.raises(NotAms):
        client.call(wire.list_projects())


def test_nobody_there_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"

        with Client(endpoint) as client, pytest.raises(Unreachable, match=f"cannot reach {endpoint}"):
            client.call(wire.get_status())


def test_no_answer_in_time_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"

        with Client(endpoint, timeout=0.1) as client, pytest.raises(Unreachable, match="in time"):
            client.call(wire.get_status())


def test_an_answer_in_plain_text_on_a_tls_endpoint_is_unreachable(stub: Stub) -> None:
    with Client(stub.url.replace("http:", "https:")) as client, pytest.raises(Unreachable):
        client.call(wire.get_status())


def test_a_proxy_of_the_environment_is_not_used_for_this_machine(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    with Client(stub.url) as client:
        client.call(wire.get_status())

    assert len(stub.requests) == 1


@pytest.mark.parametrize("endpoint", ["", "localhost:8080", "ftp://ams.example", "https://", "https://a:b@ams.example"])
def test_an_endpoint_that_cannot_be_one_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidInput, match="looks like"):
        Client(endpoint)


def test_a_bad_token_is_refused_without_being_quoted() -> None:
    with pytest.raises(InvalidInput) as raised:
        Client("http://127.0.0.1:1", "secret\n")

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("content", [None, "not a certificate"])
def test_a_ca_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    ca = tmp_path / "ca.pem"
    if content is not None:
        ca.write_text(content)

    with pytest.raises(ClientError, match=str(ca)):
        Client("https://127.0.0.1:1", ca=str(ca))


def test_the_client_depends_on_the_wire_only() -> None:
    code = "import sys, ams.client; print(*(name for name in sys.modules if name.startswith('ams.')))"

    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SOURCE)}
    )

    assert [name for name in ran.stdout.split() if not name.startswith("ams.client")] == []
