import base64
import io
import itertools
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.cli.exits import Usage
from ams.cli.messages import REQUEST_MESSAGES, requests
from tests.cli.conftest import Ams
from tests.client.stub import CUT, stub_server


def payloads(source: io.BufferedReader, attributes: dict[str, str] | None = None) -> list[bytes]:
    return [message.data for request in requests(source, attributes or {}) for message in request]


def reader(content: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(content))  # type: ignore[arg-type]  # a BytesIO is raw enough


@given(st.lists(st.binary(max_size=50).filter(lambda line: b"\n" not in line)), st.booleans())
def test_every_line_that_says_something_is_one_message(lines: list[bytes], ended: bool) -> None:
    content = b"\n".join(lines) + (b"\n" if ended else b"")

    assert payloads(reader(content)) == [line for line in lines if line]


def test_lines_across_chunks_stay_whole() -> None:
    lines = [bytes([65 + number % 26]) * (number * 97 % 5000 + 1) for number in range(200)]

    assert payloads(reader(b"\n".join(lines))) == lines


def test_an_empty_line_with_attributes_is_a_message() -> None:
    assert payloads(reader(b"a\n\nb\n"), {"k": "v"}) == [b"a", b"", b"b"]


def test_a_request_holds_a_limited_number_of_messages() -> None:
    sizes = [len(request) for request in requests(reader(b"x\n" * 2500), {})]

    assert sum(sizes) == 2500
    assert max(sizes) == REQUEST_MESSAGES


def test_a_line_is_published_when_it_is_there_not_when_a_request_is_full() -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as source, open(write_end, "wb", buffering=0) as slow:
        lines = requests(source, {})
        slow.write(b"first\n")

        [first] = next(lines)

        assert first.data == b"first"


def test_a_line_that_could_never_be_a_message_is_refused() -> None:
    read_end, write_end = os.pipe()

    def write() -> None:
        with open(write_end, "wb", buffering=0) as endless, pytest.raises(BrokenPipeError):
            endless.writelines(itertools.repeat(b"x" * 2**20))

    writer = threading.Thread(target=write)
    with open(read_end, "rb") as source:
        writer.start()
        with pytest.raises(Usage, match="too long"):
            payloads(source)
    writer.join()


@pytest.fixture
def topic(ams: Ams, project: str) -> str:
    ams("topics", "create", "jobs")
    ams("subs", "create", "reader", "--topic", "jobs")
    return "jobs"


def pulled(ams: Ams) -> list[dict[str, Any]]:
    received = json.loads(ams("pull", "reader", "--max", "100", "-o", "json").stdout)
    return [each["message"] for each in received["receivedMessages"]]


def test_texts_files_and_lines_are_published_as_they_are(ams: Ams, topic: str, tmp_path: Path) -> None:
    (tmp_path / "record").write_bytes(b"\x00\xff\n")

    ids = [
        ams("publish", topic, "--data", "ä", "--attr", "k=v=w", "--attr", "empty=").stdout,
        ams("publish", topic, "--file", "record").stdout,
        ams("publish", topic, "--file", "-", stdin="a\nb\n").stdout,
        ams("publish", topic, stdin="c\n\nd").stdout,
        ams("publish", topic, "--data", "e", "-o", "json").stdout,
    ]

    assert ids == ["0\n", "1\n", "2\n", "3\n4\n", '{"messageIds":["5"]}\n']
    first, *others = pulled(ams)
    assert first["attributes"] == {"k": "v=w", "empty": ""}
    payloads = [base64.b64decode(each["data"]) for each in (first, *others)]
    assert payloads == ["ä".encode(), b"\x00\xff\n", b"a\nb\n", b"c", b"d", b"e"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--data", "x", "--attr", "novalue"], "--attr 'novalue' must look like NAME=VALUE"),
        (["--data", "x", "--file", "y"], "give --data or --file, not both"),
        (["--file", "nowhere"], "nowhere: No such file or directory"),
    ],
)
def test_what_cannot_be_published_is_said_before_asking(ams: Ams, arguments: list[str], reason: str) -> None:
    ran = ams("publish", "jobs", *arguments)

    assert (ran.returncode, ran.stderr) == (2, f"ams: {reason}\n")


def test_a_message_that_says_nothing_is_refused_by_the_service(ams: Ams, topic: str) -> None:
    ran = ams("publish", topic, "--data", "")

    assert (ran.returncode, ran.stderr) == (
        1,
        "ams: Invalid Message Arguments: message 0, counted from 0, has neither data nor attributes\n",
    )


def test_a_publish_is_sent_again_under_its_key_and_says_so(ams: Ams) -> None:
    with stub_server() as stub:
        stub.script, stub.body = [CUT], b'{"messageIds": ["0"]}'

        ran = ams("publish", "jobs", "--data", "x", AMS_ENDPOINT=stub.url, AMS_TOKEN="t")

    assert (ran.returncode, ran.stdout) == (0, "0\n")
    assert ran.stderr.count("trying again for 30 seconds") == 1
    [(_, _, first, _), (_, _, second, _)] = stub.requests
    assert first["idempotency-key"] == second["idempotency-key"]


def test_other_commands_ask_once(ams: Ams) -> None:
    with stub_server() as stub:
        stub.status = 503

        ran = ams("topic", "list", AMS_ENDPOINT=stub.url, AMS_TOKEN="t")

    assert (ran.returncode, len(stub.requests)) == (7, 1)
