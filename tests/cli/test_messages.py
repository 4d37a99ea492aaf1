"""Messages: published from texts, files and lines, pulled, acknowledged, and followed; and filters of them."""

import base64
import io
import itertools
import json
import os
import signal
import subprocess
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ams.cli.exit_codes import Usage
from ams.cli.messages import REQUEST_MESSAGES, MessageFilter, data_text, requests
from ams.client import Message, wire
from tests.cli.conftest import Ams, StartAms
from tests.client.stub import CUT, stub_server
from tests.support.waiting import PATIENCE_SECONDS


def payloads(source: io.BufferedReader, attributes: dict[str, str] | None = None) -> list[bytes]:
    return [message.data for request in requests(source, Message(attributes=attributes or {})) for message in request]


def stream(content: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(content))  # type: ignore[arg-type]  # a BytesIO is raw enough


LINES_ACROSS_CHUNKS = [bytes([65 + number % 26]) * (number * 97 % 5000 + 1) for number in range(200)]


@example(LINES_ACROSS_CHUNKS, False)
@given(st.lists(st.binary(max_size=50).filter(lambda line: b"\n" not in line)), st.booleans())
def test_every_line_that_says_something_is_one_message(lines: list[bytes], ended: bool) -> None:
    content = b"\n".join(lines) + (b"\n" if ended else b"")
    assert payloads(stream(content)) == [line for line in lines if line]


def test_an_empty_line_with_attributes_is_a_message_and_a_request_holds_a_limited_number() -> None:
    assert payloads(stream(b"a\n\nb\n"), {"k": "v"}) == [b"a", b"", b"b"]
    sizes = [len(request) for request in requests(stream(b"x\n" * 2500), Message())]
    assert (sum(sizes), max(sizes)) == (2500, REQUEST_MESSAGES)


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


def pull_messages(ams: Ams) -> list[dict[str, Any]]:
    received = ams.json("pull", "reader", "--max", "100")
    return [each["message"] for each in received["receivedMessages"]]


def test_texts_files_and_lines_are_published_as_they_are(ams: Ams, topic: str, tmp_path: Path) -> None:
    (tmp_path / "record").write_bytes(b"\x00\xff\n")

    ids = [
        ams("publish", topic, "--data", "ä", "--attr", "k=v=w", "--attr", "empty=").stdout,
        ams("publish", topic, "--file", "record").stdout, ams("publish", topic, "--file", "-", stdin="a\nb\n").stdout,
        ams("publish", topic, stdin="c\n\nd").stdout, ams("publish", topic, "--data", "e", "-o", "json").stdout,
    ]  # fmt: skip

    assert ids == ["0\n", "1\n", "2\n", "3\n4\n", '{"messageIds":["5"]}\n']
    first, *others = pull_messages(ams)
    assert first["attributes"] == {"k": "v=w", "empty": ""}
    payloads = [base64.b64decode(each["data"]) for each in (first, *others)]
    assert payloads == ["ä".encode(), b"\x00\xff\n", b"a\nb\n", b"c", b"d", b"e"]


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
        assert ams("topic", "list", AMS_ENDPOINT=stub.url, AMS_TOKEN="t").returncode == 7
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    ("data", "shown"), [("aGk=", "hi"), ("", ""), ("w6Q=", "ä"), ("/wA=", "base64:/wA="), ("msg 1", "msg 1")]
)
def test_data_is_shown_as_text_where_it_is_text(data: str, shown: str) -> None:
    assert data_text(wire.Message(data=data)) == shown


def test_an_ordering_key_is_given_to_each_message_and_shown(ams: Ams, topic: str) -> None:
    ams("publish", topic, "--ordering-key", "bed 4", "--attr", "a=1", stdin="one\ntwo\n")
    ams("publish", topic, "--data", "three")

    received = ams.json("pull", "reader", "--max", "100")["receivedMessages"]
    assert [each.get("orderingKey") for each in received] == ["bed 4", "bed 4", None]
    assert not any("orderingKey" in each["message"] for each in received)
    lines = ams("pull", "reader", "--max", "100").stdout.splitlines()
    assert ["[bed 4] a=1" in line for line in lines[1:]] == [True, True, False]
    tailed = ams("tail", topic, "--oldest", "--max", "3", "-o", "json").stdout.splitlines()
    assert [json.loads(line).get("orderingKey") for line in tailed] == ["bed 4", "bed 4", None]


def data_of(table: str) -> list[str]:
    header, *rows = table.splitlines()
    assert header.split() == ["ID", "PUBLISHED", "ATTRIBUTES", "DATA"]
    return [row.split()[-1] for row in rows]


def test_without_ack_messages_come_again_and_with_it_the_next_ones(ams: Ams, reader: str) -> None:
    assert data_of(ams("pull", reader, "--max", "2").stdout) == ["one", "two"]
    assert data_of(ams("pull", reader, "--ack").stdout) == ["one"]
    assert data_of(ams("pull", reader, "--max", "10").stdout) == ["two", "three"]


@pytest.mark.parametrize("whole", [False, True])
def test_a_message_is_acknowledged_by_its_id_or_its_ack_id(ams: Ams, reader: str, whole: bool) -> None:
    second = ams.json("pull", reader, "--max", "3")["receivedMessages"][1]
    acked = ams("ack", reader, second["ackId"] if whole else second["message"]["messageId"])
    assert (acked.returncode, acked.stderr) == (0, "acknowledged up to 1\n")
    assert data_of(ams("pull", reader, "--max", "3").stdout) == ["three"]


def test_nothing_there_is_no_error(ams: Ams, reader: str) -> None:
    ams("subs", "seek", reader, "--to", "end")
    assert ams("pull", reader, "--no-wait") == (0, "", "no messages\n")
    assert ams.json("pull", reader, "--no-wait", "--ack") == {"receivedMessages": []}


PUSHED = ": reader is a push subscription, whose messages go to its endpoint (ams subs push-status reader)"


@pytest.mark.parametrize(("role", "more"), [("project_admin", PUSHED), ("consumer", "")])
@pytest.mark.parametrize("command", [("pull",), ("ack", "0")])
def test_a_refused_pull_says_its_reason(ams: Ams, reader: str, command: tuple[str, ...], role: str, more: str) -> None:
    """For an administrator of the project the service's answer is 403, as the contract says (10.3)."""
    if more:
        ams("subs", "push-config", reader, "--url", "https://a.example")
    made = ams.json("members", "create", f"m-{uuid.uuid4().hex}", "--role", role)

    ran = ams(command[0], reader, *command[1:], AMS_TOKEN=made["token"])

    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.startswith(f"ams: Access to this resource is forbidden{more}")
    assert bool(more) or ran.stderr == "ams: Access to this resource is forbidden\n"


@pytest.fixture
def start_tail(project: str, ams: Ams, start_ams: StartAms) -> StartAms:
    ams("topics", "create", "jobs")

    def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        process = start_ams("tail", *arguments, **variables)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("following jobs as subscription tail-")
        return process

    return start


def subscriptions(ams: Ams) -> list[dict[str, object]]:
    return ams.json("subs", "list")["subscriptions"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_new_messages_are_shown_until_a_signal(ams: Ams, start_tail: StartAms, how: signal.Signals) -> None:
    ams("publish", "jobs", "--data", "before")
    process = start_tail("jobs")

    ams("publish", "jobs", "--data", "first", "--attr", "k=v")
    assert process.stdout is not None
    first = process.stdout.readline()
    ams("publish", "jobs", "--data", "second")
    second = process.stdout.readline()
    process.send_signal(how)

    assert first.split()[0] == "1"
    assert first.split()[2:] == ["k=v", "first"]
    assert second.split()[-1] == "second"
    assert process.wait(timeout=PATIENCE_SECONDS) == 130
    assert subscriptions(ams) == []


def test_everything_kept_can_be_shown_as_a_pull_shows_it_and_it_ends_after_so_many(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("sub", "create", "reader", "--topic", "jobs")
    ams("publish", "jobs", "--data", "ä", "--attr", "k=v")
    ams("publish", "jobs", stdin="".join(f"{number}\n" for number in range(250)))

    ran = ams("tail", "jobs", "--oldest", "--max", "220", "-o", "json")

    assert (ran.returncode, ran.stderr.count("\n")) == (0, 1)
    shown = [json.loads(each) for each in ran.stdout.splitlines()]
    assert [each["messageId"] for each in shown] == [str(number) for number in range(220)]
    [received] = ams.json("pull", "reader")["receivedMessages"]
    assert shown[0] == received["message"]
    assert [each["name"] for each in subscriptions(ams)] == [f"/projects/{project}/subscriptions/reader"]


def test_a_reader_that_goes_away_ends_it_quietly(ams: Ams, start_tail: StartAms) -> None:
    process = start_tail("jobs")
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.close()
    ams("publish", "jobs", "--data", "unseen")

    assert process.wait(timeout=PATIENCE_SECONDS) == 141
    assert process.stderr.read() == ""
    assert subscriptions(ams) == []


DOCUMENT = {"site": "ATHENS", "degrees": [31, 28], "nested": {"ok": True}, "empty": None}


def passes_filter(chosen: MessageFilter, payload: bytes, **attributes: str) -> bool:
    return chosen.test()(wire.message(payload, attributes))


ANSWERS = {
    True: [
        "@.site == 'ATHENS'", "@.site == 'ATHENS' && @.degrees[0] > 30", "@.site == 'OSLO' || @.nested.ok == true",
        "@.empty == null", "$.site", "$.degrees[?@ > 30]", "$..ok", "$",
    ],
    False: ["@.site == 'OSLO'", "@.nothing", "$.nothing", "$.degrees[?@ > 40]"],
}  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_json_payload_is_asked_by_a_condition_or_a_query(answer: bool) -> None:
    for text in ANSWERS[answer]:
        assert passes_filter(MessageFilter(json=text), json.dumps(DOCUMENT).encode()) is answer, text


def test_a_payload_may_be_a_number_or_no_json_at_all() -> None:
    payloads = (b"7", b"3", b"seven", b"", b"\xff")
    assert [each for each in payloads if passes_filter(MessageFilter(json="@ > 5"), each)] == [b"7"]
    assert [each for each in payloads if passes_filter(MessageFilter(json="$"), each)] == [b"7", b"3"]
    assert not any(passes_filter(MessageFilter(json="$.site"), each) for each in payloads)


def test_both_filters_must_let_a_message_pass() -> None:
    both = MessageFilter(filter='attributes.lang = "en"', json="@.site")
    assert passes_filter(both, b'{"site": "A"}', lang="en")
    assert not passes_filter(both, b'{"site": "A"}', lang="de")
    assert not passes_filter(both, b'{"other": "A"}', lang="en")


@pytest.mark.parametrize(
    "chosen", [MessageFilter(filter="lang = en"), MessageFilter(json="@.a =="), MessageFilter(json="$[")]
)
def test_what_cannot_be_read_is_a_mistake_of_usage(chosen: MessageFilter) -> None:
    with pytest.raises(Usage, match="^--(filter|json): "):
        chosen.test()


def test_a_tail_shows_what_passes_its_filters(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("publish", "jobs", stdin='{"n": 1}\nplain\n{"n": 2}\n{"n": 3}\n')
    ran = ams("tail", "jobs", "--oldest", "--json", "@.n > 1", "--max", "2", "-o", "json")
    assert [json.loads(line)["messageId"] for line in ran.stdout.splitlines()] == ["2", "3"]
