import json
from base64 import b64decode
from datetime import UTC, datetime

import pytest

from ams.cli.exit_codes import Usage
from ams.cli.subscriptions import moment, push_status_text
from ams.client import wire
from tests.cli.conftest import WORKER_TOKEN, Ams
from tests.support.dead_letters import dead_letter
from tests.support.service import LiveService
from tests.support.waiting import wait_until


def test_times_are_read_as_people_write_them_and_what_is_no_place_in_a_topic_is_refused() -> None:
    assert moment("2024-03-05T10:20:30Z") == datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)
    assert moment("2024-03-05 10:20:30.5") == datetime(2024, 3, 5, 10, 20, 30, 500_000, tzinfo=UTC)
    assert moment("2024-03-05T10:20+02:00") == datetime(2024, 3, 5, 8, 20, tzinfo=UTC)
    assert moment("2024-03-05") == datetime(2024, 3, 5, tzinfo=UTC)
    for text in ("", "yesterday", "newest", "-5", "1.5", "2024-13-01"):
        with pytest.raises(Usage, match="is not oldest, end, an offset, or a time"):
            moment(text)


def test_a_parallel_subscription_is_made_shown_and_changed(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("topics", "create", "dead")

    made = ams("subs", "create", "reader", "jobs", "--type", "parallel",
               "--retry-min", "0.5s", "--retry-max", "1m", "--dead-letter-topic", "dead",
               "--max-attempts", "7", "--filter", "attributes:site", "--ordering", "--exactly-once",
               "--retain-acked", "--expires-after", "30d", "--retention", "12h")  # fmt: skip

    facts = (
        "type          parallel", "retry         after 0.500s to 60s", "dead letters  to dead after 7 attempts",
        "filter        attributes:site", "ordering      by key", "exactly once  yes", "retains acked yes",
        "expires       unused for 2592000s", "retention     43200s",
    )  # fmt: skip
    lines = {" ".join(line.split()) for line in ams("subs", "show", "reader").stdout.splitlines()}
    assert {" ".join(fact.split()) for fact in facts} <= lines, made.stderr
    changed = ams("subs", "update", "reader", "--retry-min", "20s", "--no-exactly-once", "--unset", "dead-letters",
                  "--unset", "expiry", "-o", "json")  # fmt: skip
    found = json.loads(changed.stdout)
    assert found["retryPolicy"] == {"minimumBackoff": "20s", "maximumBackoff": "600s"}
    assert found["messageRetentionDuration"] == "43200s"
    assert not found.keys() & {"enableExactlyOnceDelivery", "deadLetterPolicy", "expirationPolicy"}


def test_a_subscription_is_listed_shown_changed_and_deleted(ams: Ams, reader: str) -> None:
    assert ams("subs", "list").stdout.splitlines()[1].split()[:3] == ["reader", "jobs", "60s"]
    for seconds in (0, 600, 20):
        assert ams("subs", "ack-deadline", reader, str(seconds)).returncode == 0
        assert ams.json("subs", "show", reader)["ackDeadlineSeconds"] == seconds
    assert "deadline      20s" in ams("subs", "show", reader).stdout.splitlines()
    assert ams("subs", "acl", reader).stdout.split() == ["USER"]
    assert ams("subs", "set-acl", reader, "--none").returncode == 0
    assert ams("subs", "delete", reader).returncode == 0
    assert ams("subs", "offsets", reader).returncode == 4


def test_seeking_moves_the_subscription(ams: Ams, reader: str) -> None:
    assert ams("subs", "seek", reader, "--to", "1").stdout == "subscription reader moved to 1\n"
    for place, offset in (
        ("--to end", 3), ("--to oldest", 0), ("--to 2", 2), ("--to 2024-03-05", 0), ("--to 2999-01-01", 3),
        ("--oldest", 0), ("--end", 3),
    ):  # fmt: skip
        assert ams.json("subs", "seek", reader, *place.split()) == {"max": 3, "min": 0, "current": offset}
    assert ams.json("subs", "offsets", reader) == {"max": 3, "min": 0, "current": 3}


def test_of_a_parallel_subscription_it_is_shown_what_is_under_way_until_it_is_detached(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("subs", "create", "worker", "jobs", "--type", "parallel")
    for number in range(4):
        ams("publish", "jobs", "--data", str(number))
    pulled = ams.json("pull", "worker", "--max", "3")["receivedMessages"]
    ams("ack", "worker", pulled[1]["ackId"])

    shown = dict(line.rsplit(maxsplit=1) for line in ams("subs", "offsets", "worker").stdout.splitlines())
    assert shown == {
        "oldest": "0", "next": "0", "end": "4", "backlog": "3", "acknowledged above": "1", "on lease": "2",
        "waiting": "0", "blocked": "0",
    }  # fmt: skip
    assert len(ams.json("pull", "worker", "--ack")["receivedMessages"]) == 1
    assert ["backlog", "2"] in [line.split() for line in ams("subs", "offsets", "worker").stdout.splitlines()]
    assert ams("subs", "detach", "worker").stderr == "subscription worker detached\n"
    assert "detached" in ams("subs", "show", "worker").stdout
    refused = ams("pull", "worker")
    assert (refused.returncode, "Subscription is detached" in refused.stderr) == (5, True)


def test_push_is_configured_and_taken_back(ams: Ams, reader: str) -> None:
    url = "https://127.0.0.1:1/in"
    ams("topics", "create", "dead")
    dead_letters = ("--dead-letter-topic", "dead", "--max-attempts", "7")

    asked = ("subs", "push-config", reader, "--url", url, "--retry", "slowstart", "--base64-decode", *dead_letters)
    config = ams.json(*asked)["pushConfig"]
    assert (config["pushEndpoint"], config["retryPolicy"]) == (url, {"type": "slowstart", "period": 0})
    assert (config["base64Decode"], config["maxDeliveryAttempts"]) == (True, 7)
    assert config["deadLetterTopic"].endswith("/topics/dead")
    shown = ams("subs", "show", reader).stdout
    assert config["verificationHash"] in shown
    assert config["authorizationHeader"]["value"] not in shown
    verified = ams("subs", "verify-push", reader)
    assert verified.returncode == 3
    assert verified.stderr == "ams: Endpoint verification failed.127.0.0.1 is not a public address\n"
    assert ams("subs", "push-config", reader, "--none").returncode == 0
    assert "push" not in ams("subs", "show", reader).stdout
    ams("subs", "push-config", reader, "--mattermost", "https://chat.example/hooks/x", "--username", "bot")
    assert "push          https://chat.example/hooks/x" in ams("subs", "show", reader).stdout.splitlines()
    ams("subs", "create", "lanes", "jobs", "--type", "parallel")
    ams("subs", "push-config", "lanes", "--url", "https://a.example", "--max-outstanding", "7")
    assert ams.json("subs", "show", "lanes")["pushConfig"]["maxOutstanding"] == 7


def test_people_see_the_last_ten_attempts_and_nothing_that_draws_on_their_terminal() -> None:
    attempt = wire.PushAttempt(
        time="2024-03-05T10:20:30.000Z", messages=1, milliseconds=9, bytes=99, error="come\nback"
    )
    status = wire.PushStatus(push_status="it failed", state="retrying", backlog=0, attempts=[attempt] * 12)

    shown = push_status_text(status).splitlines()

    assert shown[0].split() == ["state", "retrying"]
    assert shown[-11].split() == ["ATTEMPT", "STATUS", "MS", "MESSAGES", "BYTES", "ERROR"]
    assert {tuple(x.split()) for x in shown[-10:]} == {("2024-03-05T10:20:30.000Z", "-", "9", "1", "99", "come\\nback")}


def test_a_secret_is_shown_once_and_never_again(ams: Ams, reader: str, service: LiveService) -> None:
    ams("subs", "push-config", reader, "--url", "https://a.example")

    first = ams("subs", "push-secret", reader).stdout.split()
    second = ams.json("subs", "push-secret", reader, "--keep", "1h")

    assert (first[0], len(first), second["secret"][:6]) == ("secret", 2, "whsec_")
    assert second["previousValidUntil"]
    said = "".join(
        ams(*command, "-o", "json").stdout
        for command in (("subs", "show", reader), ("subs", "list"), ("doctor", reader), ("status",), ("topics", "list"))
    )
    files = [path for path in service.data.rglob("*") if path.is_file()]
    log = service.data.parent / f"{service.data.name}.stderr"
    held = b"".join(path.read_bytes() for path in (*files, log)) + said.encode()
    for secret in (first[1], second["secret"]):
        assert secret.removeprefix("whsec_").encode() not in held
        assert b64decode(secret.removeprefix("whsec_")) not in held


def test_a_snapshot_is_made_listed_shown_and_deleted(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("subs", "create", "workers", "jobs", "--type", "parallel")

    made = ams.json("snapshots", "create", "before", "workers")

    assert made["name"] == f"/projects/{project}/snapshots/before"
    assert ams.json("snapshots", "show", "before") == {**made, "lost": 0}
    header, row = ams("snapshots", "list").stdout.splitlines()
    assert header.split() == ["SNAPSHOT", "TOPIC", "CREATED", "EXPIRES"]
    assert row.split() == ["before", "jobs", made["createdOn"], made["expireTime"]]
    assert ams("subs", "seek", "workers", "--snapshot", "before").stdout == "subscription workers moved to 0\n"
    assert ams("snapshots", "delete", "before").stderr == "snapshot before deleted\n"
    assert ams("snapshots", "show", "before").returncode == 4


URL = "https://pump.example/in"


@pytest.fixture
def sub(ams: Ams, project: str, service: LiveService) -> str:
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


def test_those_of_a_subscription_are_listed_the_newest_first_and_one_is_shown_as_it_was(ams: Ams, sub: str) -> None:
    rows = [line.split() for line in ams("dead", "list", sub).stdout.splitlines()]

    assert rows[0] == ["ID", "SINCE", "MESSAGE", "ATTEMPTS", "STATUS", "REASON"]
    assert [[row[0], *row[2:]] for row in rows[1:]] == [["2", "1", "3", "422", "no", "1"],
                                                        ["0", "0", "3", "422", "no", "0"]]  # fmt: skip
    assert len(ams("dead", "list", sub, "--limit", "1").stdout.splitlines()) == 2
    [letter] = ams.json("dead", "list", "other")
    assert (letter["messageId"], letter["attributes"]["deadLetterMessageId"]) == ("1", "0")
    shown = dict(line.split(maxsplit=1) for line in ams("dead", "show", sub, "2").stdout.splitlines())

    assert (shown["message"], shown["topic"], shown["status"], shown["reason"]) == ("1", "jobs", "422", "no 1")
    assert (shown["attribute"].split(), shown["data"]) == (["kind", "x"], "two")
    assert ams.json("dead", "show", sub, "2")["offset"] == 2


def test_they_are_found_over_the_bounds_of_one_read(ams: Ams, sub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.cli.dead_letters.AT_ONCE", 1)
    assert [line.split()[0] for line in ams("dead", "list", sub).stdout.splitlines()[1:]] == ["2", "0"]
    assert [line.split()[0] for line in ams("dead", "redrive", sub, "--all").stdout.splitlines()] == ["0", "2"]


def test_one_of_another_subscription_or_none_is_not_found(ams: Ams, sub: str) -> None:
    for command, number in (("show", "1"), ("redrive", "1"), ("show", "7"), ("redrive", "7")):
        asked = ams("dead", command, sub, number)
        assert asked.returncode == 4
        assert asked.stderr == f"ams: {number} is no dead letter of subscription {sub} in topic dead\n"
    assert len(jobs(ams)) == 4


def test_they_are_published_again_as_they_were_once_each(ams: Ams, sub: str) -> None:
    before = jobs(ams)

    assert ams("dead", "redrive", sub, "2").stdout == "2 is 4 in topic jobs\n"
    again = ams("dead", "redrive", sub, "--all", "-o", "json").stdout.splitlines()

    assert [json.loads(line) for line in again] == [
        {"id": "0", "topic": "jobs", "messageId": "5", "publishedBefore": False},
        {"id": "2", "topic": "jobs", "messageId": "4", "publishedBefore": True},
    ]
    assert ams("dead", "redrive", sub, "2").stdout == "2 is 4 in topic jobs, as before\n"
    after = jobs(ams)
    assert [(each["data"], each["attributes"]) for each in after[4:]] == [
        (before[1]["data"], {"kind": "x"}), (before[0]["data"], {"kind": "x"}),
    ]  # fmt: skip


FORGED = {
    "another body": {}, "a message that never was": {"deadLetterMessageId": "99"},
    "no id": {"deadLetterMessageId": "x"}, "another topic": {"deadLetterSourceTopic": "projects/p/topics/none"},
}  # fmt: skip


@pytest.mark.parametrize("said", FORGED)
def test_what_a_publisher_wrote_to_look_like_one_is_not_published(ams: Ams, sub: str, project: str, said: str) -> None:
    attributes = {
        "deadLetterSubscription": f"projects/{project}/subscriptions/{sub}",
        "deadLetterSourceTopic": f"projects/{project}/topics/jobs", "deadLetterMessageId": "1", **FORGED[said],
    }  # fmt: skip
    given = [word for name, value in attributes.items() for word in ("--attr", f"{name}={value}")]
    ams("publish", "dead", "--data", "forged", *given)

    ran = ams("dead", "redrive", sub, "--all")

    assert (ran.returncode, len(ran.stdout.splitlines())) == (5, 2)
    assert "not published: 3 of topic dead" in ran.stderr
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
    path = f"/projects/{project}/subscriptions/many"
    for _ in range(5):
        pulled = service.ask("POST", f"{path}:pull", {})["receivedMessages"]
        service.ask("POST", f"{path}:nack", {"ackIds": [each["ackId"] for each in pulled]})
    found = wait_until(lambda: ams.json("dead", "list", "many"))

    assert found[0]["attributes"]["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    for told in ("", ", as before"):
        assert ams("dead", "redrive", "many", "--all").stdout == f"0 is 1 in topic t{told}\n"
    before, after = jobs(ams, "t")
    assert [after[name] == before[name] for name in ("data", "attributes", "orderingKey")] == [True] * 3
