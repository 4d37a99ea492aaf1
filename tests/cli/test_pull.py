import json
import uuid

import pytest

from ams.cli.messages import data_text, row
from ams.client import wire
from tests.cli.conftest import Ams


@pytest.mark.parametrize(
    ("data", "shown"),
    [("aGk=", "hi"), ("", ""), ("w6Q=", "ä"), ("/wA=", "base64:/wA="), ("msg 1", "msg 1")],
)
def test_data_is_shown_as_text_where_it_is_text(data: str, shown: str) -> None:
    assert data_text(wire.Message(data=data)) == shown


def test_a_message_is_shown_with_its_id_time_and_attributes() -> None:
    message = wire.Message(message_id="7", publish_time="2024-03-05T10:20:30Z", attributes={"a": "1", "b": "2"})

    assert row(message) == ("7", "2024-03-05T10:20:30Z", "a=1 b=2", "")


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
