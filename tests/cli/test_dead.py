import json
import ssl
import time

import httpx
import pytest

from tests.cli.conftest import WORKER_TOKEN, Ams
from tests.support.dead_letters import dead_letter
from tests.support.service import LiveService

URL = "https://pump.example/in"


@pytest.fixture
def sub(ams: Ams, project: str, service: LiveService) -> str:
    """Make a subscription to `jobs` whose endpoint refused the first two of four messages; `other` has one too."""
    for topic in ("jobs", "dead"):
        ams("topics", "create", topic)
    for name in ("reader", "other"):
        ams("subs", "create", name, "--topic", "jobs")
        assert ams("subs", "push-config", name, "--url", URL, "--dead-letter-topic", "dead").returncode == 0
    ams("publish", "jobs", "--attr", "kind=x", stdin="one\ntwo\nthree\nfour\n")
    for name, offset in (("reader", 0), ("other", 0), ("reader", 1)):
        put_aside(service, project, name, offset)
    return "reader"


def put_aside(service: LiveService, project: str, name: str, offset: int) -> None:
    path = f"projects/{project}/subscriptions/{name}"
    dead_letter(service.base_url, service.ca, WORKER_TOKEN, path, offset, f"no {offset}", 422)


def jobs(ams: Ams, topic: str = "jobs") -> list[dict[str, object]]:
    return [json.loads(line) for line in ams("topics", "read", topic, "-o", "json").stdout.splitlines()]


def test_those_of_a_subscription_are_listed_the_newest_first(ams: Ams, sub: str) -> None:
    rows = [line.split() for line in ams("dead", "list", sub).stdout.splitlines()]

    assert rows[0] == ["ID", "SINCE", "MESSAGE", "ATTEMPTS", "STATUS", "REASON"]
    assert [[row[0], *row[2:]] for row in rows[1:]] == [
        ["2", "1", "3", "422", "no", "1"],
        ["0", "0", "3", "422", "no", "0"],
    ]
    assert len(ams("dead", "list", sub, "--limit", "1").stdout.splitlines()) == 2
    [letter] = ams.json("dead", "list", "other")
    assert (letter["messageId"], letter["attributes"]["deadLetterMessageId"]) == ("1", "0")


def test_many_are_found_over_the_bounds_of_one_read(ams: Ams, sub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.cli.dead.AT_ONCE", 1)

    assert [line.split()[0] for line in ams("dead", "list", sub).stdout.splitlines()[1:]] == ["2", "0"]
    assert [line.split()[0] for line in ams("dead", "redrive", sub, "--all").stdout.splitlines()] == ["0", "2"]


def test_one_is_shown_as_it_was_and_why_it_is_dead(ams: Ams, sub: str) -> None:
    shown = dict(line.split(maxsplit=1) for line in ams("dead", "show", sub, "2").stdout.splitlines())

    assert (shown["message"], shown["topic"], shown["status"], shown["reason"]) == ("1", "jobs", "422", "no 1")
    assert (shown["attribute"].split(), shown["data"]) == (["kind", "x"], "two")
    assert ams.json("dead", "show", sub, "2")["offset"] == 2


@pytest.mark.parametrize("number", ["1", "7"])
def test_one_of_another_subscription_or_none_is_not_found(ams: Ams, sub: str, number: str) -> None:
    for command in ("show", "redrive"):
        asked = ams("dead", command, sub, number)

        assert asked.returncode == 4
        assert asked.stderr == f"ams: {number} is no dead letter of subscription {sub} in topic dead\n"
    assert len(jobs(ams)) == 4


def test_they_are_published_again_as_they_were_once_each(ams: Ams, sub: str) -> None:
    before = jobs(ams)

    assert ams("dead", "redrive", sub, "2").stdout == "2 is 4 in topic jobs\n"
    again = ams("dead", "redrive", sub, "--all", "-o", "json").stdout.splitlines()

    assert [json.loads(line) for line in again] == [
        {"id": "0", "topic": "jobs", "messageId": "5"},
        {"id": "2", "topic": "jobs", "messageId": "4"},
    ]
    after = jobs(ams)
    assert [(each["data"], each["attributes"]) for each in after[4:]] == [
        (before[1]["data"], {"kind": "x"}),
        (before[0]["data"], {"kind": "x"}),
    ]


FORGED = {
    "another body": {},
    "a message that never was": {"deadLetterMessageId": "99"},
    "no id": {"deadLetterMessageId": "x"},
    "another topic": {"deadLetterSourceTopic": "projects/p/topics/none"},
}


@pytest.mark.parametrize("said", FORGED)
def test_what_a_publisher_wrote_to_look_like_one_is_not_published(ams: Ams, sub: str, project: str, said: str) -> None:
    attributes = {
        "deadLetterSubscription": f"projects/{project}/subscriptions/{sub}",
        "deadLetterSourceTopic": f"projects/{project}/topics/jobs",
        "deadLetterMessageId": "1",
        **FORGED[said],
    }
    given = [word for name, value in attributes.items() for word in ("--attr", f"{name}={value}")]
    ams("publish", "dead", "--data", "forged", *given)

    ran = ams("dead", "redrive", sub, "--all")

    assert (ran.returncode, len(ran.stdout.splitlines()), "not published: 3 of topic dead" in ran.stderr) == (
        5,
        2,
        True,
    )
    assert len(jobs(ams)) == 6
    assert ams("dead", "redrive", sub, "3", "--unverified").stdout == "3 is 6 in topic jobs\n"


def test_what_was_refused_again_is_another_dead_letter(ams: Ams, sub: str, project: str, service: LiveService) -> None:
    ams("dead", "redrive", sub, "0")
    for offset in (2, 3, 4):
        put_aside(service, project, sub, offset)

    newest = ams.json("dead", "list", sub, "--limit", "1")[0]

    assert (newest["messageId"], newest["attributes"]["deadLetterMessageId"]) == ("5", "4")
    assert ams("dead", "redrive", sub, "5").stdout == "5 is 5 in topic jobs\n"


def test_a_subscription_without_a_dead_letter_topic_needs_to_be_told_where(ams: Ams, sub: str) -> None:
    ams("subs", "push-config", sub, "--none")

    asked = ams("dead", "list", sub)

    assert asked.returncode == 2
    assert "subscription reader has no dead letter topic: name the one it had with --from" in asked.stderr
    assert len(ams("dead", "list", sub, "--from", "dead").stdout.splitlines()) == 3
    ams("subs", "delete", sub)
    assert ams("dead", "redrive", sub, "--all", "--from", "dead").returncode == 4
    ams("topics", "create", "again")
    assert ams("dead", "redrive", sub, "--all", "--from", "dead", "--to", "again").stdout.split()[-1] == "again"
    assert (len(jobs(ams, "again")), len(jobs(ams))) == (2, 4)


def test_a_topic_that_is_gone_is_told(ams: Ams, sub: str) -> None:
    ams("topics", "delete", "dead")

    assert ams("dead", "list", sub).returncode == 4
    assert ams("dead", "list", "nobody").returncode == 4


def test_a_consumer_looks_through_a_subscription_to_the_topic(ams: Ams, sub: str, project: str) -> None:
    made = ams("members", "create", f"{project}-con", "--role", "consumer", "-o", "json")
    token = json.loads(made.stdout)["token"]
    ams("subs", "create", "graves", "--topic", "dead")
    for name in ("graves", sub):
        ams("subs", "set-acl", name, f"{project}-con")

    assert ams("dead", "list", sub, AMS_TOKEN=token).returncode == 3
    listed = ams("dead", "list", sub, "--subscription", "graves", AMS_TOKEN=token)

    assert len(listed.stdout.splitlines()) == 3, listed.stderr
    assert ams("dead", "redrive", sub, "0", "--subscription", "graves", AMS_TOKEN=token).returncode == 3


def test_those_of_a_parallel_subscription_are_published_again(ams: Ams, project: str, service: LiveService) -> None:
    for topic in ("t", "aside"):
        ams("topics", "create", topic)
    assert ams("subs", "create", "many", "t", "--type", "parallel", "--dead-letter-topic", "aside").returncode == 0
    ams("publish", "t", "--attr", "kind=x", "--ordering-key", "north", "--data", "poison")
    path = f"{service.base_url}/v1/projects/{project}/subscriptions/many"
    with httpx.Client(verify=ssl.create_default_context(cafile=str(service.ca)), trust_env=False) as client:
        client.headers["x-api-key"] = service.token
        for _ in range(5):
            pulled = client.post(f"{path}:pull", json={}).json()["receivedMessages"]
            client.post(f"{path}:nack", json={"ackIds": [each["ackId"] for each in pulled]})
    while not (found := ams.json("dead", "list", "many")):
        time.sleep(0.05)

    assert found[0]["attributes"]["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    for _ in range(2):
        assert ams("dead", "redrive", "many", "--all").stdout == "0 is 1 in topic t\n"
    before, after = jobs(ams, "t")
    assert [after[name] == before[name] for name in ("data", "attributes", "orderingKey")] == [True] * 3
