import base64
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.cli.exits import Usage
from ams.cli.messages import REQUEST_MESSAGES, data_text, requests, row
from ams.client import Message, wire
from tests.cli.conftest import Ams
from tests.client.stub import CUT, stub_server
from tests.support.service import live_service


def payloads(source: io.BufferedReader, attributes: dict[str, str] | None = None) -> list[bytes]:
    return [message.data for request in requests(source, Message(attributes=attributes or {})) for message in request]


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
    sizes = [len(request) for request in requests(reader(b"x\n" * 2500), Message())]

    assert sum(sizes) == 2500
    assert max(sizes) == REQUEST_MESSAGES


def test_a_line_is_published_when_it_is_there_not_when_a_request_is_full() -> None:
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as source, open(write_end, "wb", buffering=0) as slow:
        lines = requests(source, Message())
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


@pytest.mark.parametrize(
    ("data", "shown"),
    [("aGk=", "hi"), ("", ""), ("w6Q=", "ä"), ("/wA=", "base64:/wA="), ("msg 1", "msg 1")],
)
def test_data_is_shown_as_text_where_it_is_text(data: str, shown: str) -> None:
    assert data_text(wire.Message(data=data)) == shown


def test_a_message_is_shown_with_its_id_time_and_attributes() -> None:
    message = wire.Message(message_id="7", publish_time="2024-03-05T10:20:30Z", attributes={"a": "1", "b": "2"})

    assert row(message) == ("7", "2024-03-05T10:20:30Z", "a=1 b=2", "")
    assert row(message, "bed 4") == ("7", "2024-03-05T10:20:30Z", "[bed 4] a=1 b=2", "")
    assert row(wire.Message(), "bed 4") == ("", "", "[bed 4]", "")


def test_an_ordering_key_is_given_to_each_message_and_shown(ams: Ams, topic: str) -> None:
    ams("publish", topic, "--ordering-key", "bed 4", "--attr", "a=1", stdin="one\ntwo\n")
    ams("publish", topic, "--data", "three")

    received = json.loads(ams("pull", "reader", "--max", "100", "-o", "json").stdout)["receivedMessages"]
    assert [each.get("orderingKey") for each in received] == ["bed 4", "bed 4", None]
    assert not any("orderingKey" in each["message"] for each in received)
    lines = ams("pull", "reader", "--max", "100").stdout.splitlines()
    assert ["[bed 4] a=1" in line for line in lines[1:]] == [True, True, False]
    tailed = ams("tail", topic, "--oldest", "--max", "3", "-o", "json").stdout.splitlines()
    assert [json.loads(line).get("orderingKey") for line in tailed] == ["bed 4", "bed 4", None]


@pytest.fixture
def sub(ams: Ams, project: str) -> str:
    """Make a topic with a subscription and three messages."""
    ams("topics", "create", "jobs")
    ams("subs", "create", "reader", "--topic", "jobs")
    ams("publish", "jobs", stdin="one\ntwo\nthree\n")
    return "reader"


def data_of(table: str) -> list[str]:
    header, *rows = table.splitlines()
    assert header.split() == ["ID", "PUBLISHED", "ATTRIBUTES", "DATA"]
    return [row.split()[-1] for row in rows]


def test_without_ack_messages_come_again_and_with_it_the_next_ones(ams: Ams, sub: str) -> None:
    assert data_of(ams("pull", sub, "--max", "2").stdout) == ["one", "two"]
    assert data_of(ams("pull", sub, "--ack").stdout) == ["one"]
    assert data_of(ams("pull", sub, "--max", "10").stdout) == ["two", "three"]


@pytest.mark.parametrize("whole", [False, True])
def test_a_message_is_acknowledged_by_its_id_or_its_ack_id(ams: Ams, sub: str, whole: bool) -> None:
    second = json.loads(ams("pull", sub, "--max", "3", "-o", "json").stdout)["receivedMessages"][1]

    acked = ams("ack", sub, second["ackId"] if whole else second["message"]["messageId"])

    assert (acked.returncode, acked.stderr) == (0, "acknowledged up to 1\n")
    assert data_of(ams("pull", sub, "--max", "3").stdout) == ["three"]


def test_nothing_there_is_no_error(ams: Ams, sub: str) -> None:
    ams("subs", "seek", sub, "--to", "end")

    for_people = ams("pull", sub, "--no-wait")
    for_programs = ams("pull", sub, "--no-wait", "--ack", "-o", "json")

    assert (for_people.returncode, for_people.stdout, for_people.stderr) == (0, "", "no messages\n")
    assert json.loads(for_programs.stdout) == {"receivedMessages": []}


def test_an_ack_that_makes_no_sense_is_refused(ams: Ams, sub: str) -> None:
    ran = ams("ack", sub, "projects/other/subscriptions/reader:0")

    assert (ran.returncode, ran.stderr) == (1, "ams: Invalid ack id\n")


@pytest.mark.parametrize("command", [("pull",), ("ack", "0")])
def test_of_a_push_subscription_it_is_said_that_it_is_one(ams: Ams, sub: str, command: tuple[str, ...]) -> None:
    """The service answers an administrator of the project that it is forbidden, as the contract says (10.3)."""
    ams("subs", "push-config", sub, "--url", "https://a.example")
    made = ams("members", "create", f"padm-{uuid.uuid4().hex}", "--role", "project_admin", "-o", "json")

    ran = ams(command[0], sub, *command[1:], AMS_TOKEN=json.loads(made.stdout)["token"])

    said = "Access to this resource is forbidden: reader is a push subscription, whose messages go to its endpoint"
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith(f"ams: {said} (ams subs push-status reader)")


@pytest.mark.parametrize("command", [("pull",), ("ack", "0")])
def test_who_may_not_pull_for_another_reason_is_told_what_the_service_said(
    ams: Ams, sub: str, command: tuple[str, ...]
) -> None:
    made = ams("members", "create", f"con-{uuid.uuid4().hex}", "--role", "consumer", "-o", "json")

    ran = ams(command[0], sub, *command[1:], AMS_TOKEN=json.loads(made.stdout)["token"])

    assert ran.stderr == "ams: Access to this resource is forbidden\n"


Follow = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def follow(project: str, ams: Ams, environment: dict[str, str], tmp_path: Path) -> Iterator[Follow]:
    """Start `ams tail`, ready to see what is published."""
    ams("topics", "create", "jobs")
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "ams.cli.main", "tail", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment | variables,
            cwd=tmp_path,
        )
        started.append(process)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("following jobs as subscription tail-")
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def subscriptions(ams: Ams) -> list[object]:
    return json.loads(ams("subs", "list", "-o", "json").stdout)["subscriptions"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_new_messages_are_shown_until_it_is_stopped_and_nothing_stays(
    ams: Ams, follow: Follow, how: signal.Signals
) -> None:
    ams("publish", "jobs", "--data", "before")
    process = follow("jobs")

    ams("publish", "jobs", "--data", "first", "--attr", "k=v")
    first = line(process)
    ams("publish", "jobs", "--data", "second")
    second = line(process)
    process.send_signal(how)

    assert first.split()[0] == "1"
    assert first.split()[2:] == ["k=v", "first"]
    assert second.split()[-1] == "second"
    assert process.wait(timeout=10) == 130
    assert subscriptions(ams) == []


def test_everything_kept_can_be_shown_and_it_ends_after_so_many(ams: Ams, follow: Follow) -> None:
    ams("publish", "jobs", stdin="".join(f"{number}\n" for number in range(250)))

    process = follow("jobs", "--oldest", "--max", "220", "-o", "json")
    shown, said = process.communicate(timeout=20)

    assert [json.loads(each)["messageId"] for each in shown.splitlines()] == [str(number) for number in range(220)]
    assert (process.returncode, said) == (0, "")
    assert subscriptions(ams) == []


def test_a_line_of_json_is_the_message_as_a_pull_shows_it(ams: Ams, follow: Follow) -> None:
    ams("sub", "create", "reader", "--topic", "jobs")
    ams("publish", "jobs", "--data", "ä", "--attr", "k=v")

    process = follow("jobs", "--oldest", "--max", "1", "-o", "json")

    shown, _ = process.communicate(timeout=20)
    [received] = json.loads(ams("pull", "reader", "-o", "json").stdout)["receivedMessages"]
    assert json.loads(shown) == received["message"]


def test_a_reader_that_goes_away_ends_it_quietly(ams: Ams, follow: Follow) -> None:
    process = follow("jobs")
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.close()
    ams("publish", "jobs", "--data", "unseen")

    assert process.wait(timeout=10) == 141
    assert process.stderr.read() == ""
    assert subscriptions(ams) == []


def test_a_topic_that_is_not_there_is_said(ams_process: Ams, project: str) -> None:
    ran = ams_process("tail", "nothing")

    assert (ran.returncode, ran.stderr) == (4, "ams: Topic doesn't exist\n")


def test_a_restart_of_the_service_is_lived_through(ams: Ams, follow: Follow, tmp_path: Path) -> None:
    data = tmp_path / "own-service"
    flags = ("--tls-self-signed", "--min-free-bytes", "0", "--reserve-bytes", "0")
    with live_service(data, *flags) as service:
        own = {"AMS_ENDPOINT": service.base_url, "AMS_TOKEN": service.token, "AMS_CA": str(service.ca)}
        ams("projects", "create", "garden", **own)
        ams("topics", "create", "jobs", "--project", "garden", **own)
        process = follow("jobs", "--project", "garden", "--max", "1", **own)
        service.kill()

    with live_service(data, *flags, "--port", str(urlsplit(own["AMS_ENDPOINT"]).port)):
        ams("publish", "jobs", "--project", "garden", "--data", "after", **own)
        shown, said = process.communicate(timeout=20)

    assert shown.split()[-1] == "after"
    assert (process.returncode, said.count("trying again for 30 seconds")) == (0, 1)
