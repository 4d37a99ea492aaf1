import json
from base64 import b64decode
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from ams.cli.exits import Usage
from ams.cli.subscriptions import moment, push_status_text
from ams.client import wire
from tests.cli.conftest import Ams
from tests.support.service import LiveService


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-03-05T10:20:30Z", datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)),
        ("2024-03-05 10:20:30.5", datetime(2024, 3, 5, 10, 20, 30, 500_000, tzinfo=UTC)),
        ("2024-03-05T10:20+02:00", datetime(2024, 3, 5, 10, 20, tzinfo=timezone(timedelta(hours=2)))),
        ("2024-03-05", datetime(2024, 3, 5, tzinfo=UTC)),
    ],
)
def test_times_are_read_as_people_write_them(text: str, expected: datetime) -> None:
    assert moment(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "newest", "-5", "1.5", "2024-13-01"])
def test_what_is_no_place_in_a_topic_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="is not oldest, end, an offset, or a time"):
        moment(text)


@pytest.mark.parametrize("deadline", [0, 600])
def test_a_deadline_is_what_was_said_also_0(ams: Ams, project: str, deadline: int) -> None:
    ams("topics", "create", "jobs")

    made = ams.json("subs", "create", "reader", "jobs", "--ack-deadline", str(deadline))

    assert (made["topic"], made["ackDeadlineSeconds"]) == (f"/projects/{project}/topics/jobs", deadline)
    assert ams.json("subs", "show", "reader")["ackDeadlineSeconds"] == deadline


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
    assert ams("subs", "ack-deadline", reader, "20").returncode == 0
    assert ams.json("subs", "show", reader)["ackDeadlineSeconds"] == 20
    assert "deadline      20s" in ams("subs", "show", reader).stdout.splitlines()
    assert ams("subs", "acl", reader).stdout.split() == ["USER"]
    assert ams("subs", "set-acl", reader, "--none").returncode == 0
    assert ams("subs", "delete", reader).returncode == 0
    assert ams("subs", "offsets", reader).returncode == 4


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (["--to", "end"], 3),
        (["--to", "oldest"], 0),
        (["--to", "2"], 2),
        (["--to", "2024-03-05"], 0),
        (["--to", "2999-01-01"], 3),
        (["--oldest"], 0),
        (["--end"], 3),
    ],
)
def test_seeking_moves_the_subscription(ams: Ams, reader: str, place: list[str], offset: int) -> None:
    assert ams("subs", "seek", reader, "--to", "1").stdout == "subscription reader moved to 1\n"

    assert ams.json("subs", "seek", reader, *place) == {"max": 3, "min": 0, "current": offset}
    assert ams.json("subs", "offsets", reader) == {"max": 3, "min": 0, "current": offset}


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
    assert ams("subs", "detach", "worker").stderr == "subscription worker detached\n"
    assert "detached" in ams("subs", "show", "worker").stdout
    refused = ams("pull", "worker")
    assert (refused.returncode, "Subscription is detached" in refused.stderr) == (5, True)


def test_push_is_configured_and_taken_back(ams: Ams, reader: str) -> None:
    url = "https://127.0.0.1:1/in"
    asked = ams("subs", "push-config", reader, "--url", url, "--retry", "slowstart", "--base64-decode", "-o", "json")

    config = json.loads(asked.stdout)["pushConfig"]
    assert (config["pushEndpoint"], config["retryPolicy"]) == (url, {"type": "slowstart", "period": 0})
    assert config["base64Decode"]
    shown = ams("subs", "show", reader).stdout
    assert config["verificationHash"] in shown
    assert config["authorizationHeader"]["value"] not in shown
    assert ams("subs", "push-config", reader, "--none").returncode == 0
    assert "push" not in ams("subs", "show", reader).stdout


def test_an_endpoint_that_cannot_be_verified_is_told(ams: Ams, reader: str) -> None:
    ams("subs", "push-config", reader, "--url", "https://127.0.0.1:1/in")

    verified = ams("subs", "verify-push", reader)

    assert verified.returncode == 3
    assert verified.stderr == "ams: Endpoint verification failed.127.0.0.1 is not a public address\n"


def test_mattermost_needs_no_verifying(ams: Ams, reader: str) -> None:
    ams("subs", "push-config", reader, "--mattermost", "https://chat.example/hooks/x", "--username", "bot")

    shown = ams("subs", "show", reader).stdout.splitlines()
    assert "push          https://chat.example/hooks/x" in shown
    assert any(line.startswith("push status   ") for line in shown)
    assert ams("subs", "verify-push", reader).returncode == 5


def test_dead_letters_and_retries_are_configured(ams: Ams, reader: str) -> None:
    ams("topics", "create", "dead")
    dead_letters = ("--dead-letter-topic", "dead", "--max-attempts", "7")

    asked = ams("subs", "push-config", reader, "--url", "https://a.example", "--retry", "exponential", *dead_letters)

    assert "dead letters  to dead after 7 attempts" in asked.stdout.splitlines()
    config = ams.json("subs", "show", reader)["pushConfig"]
    assert config["deadLetterTopic"].endswith("/topics/dead")
    assert (config["maxDeliveryAttempts"], config["retryPolicy"]) == (7, {"type": "exponential", "period": 1000})


def test_deliveries_at_a_time_of_a_parallel_subscription_are_configured(ams: Ams, project: str) -> None:
    ams("topics", "create", "wide")
    ams("subs", "create", "lanes", "wide", "--type", "parallel")
    ams("subs", "push-config", "lanes", "--url", "https://a.example", "--max-outstanding", "7")

    assert ams.json("subs", "show", "lanes")["pushConfig"]["maxOutstanding"] == 7


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


BROKEN = wire.PushError(time="2024-03-05T10:20:30.007Z", what="send", detail="come\nback", status=503)


def test_a_subscription_that_waits_for_its_endpoint_is_shown(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("subs", "create", "reader", "--topic", "jobs")
    ams("subs", "push-config", "reader", "--url", "https://receiver.example/in")
    ams("publish", "jobs", stdin="one\ntwo\n")

    told = ams("sub", "push-status", "reader")

    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines() == ["state    unverified", "backlog  2"]
    found = ams.json("subs", "push-status", "reader")
    assert found == {"pushStatus": "", "state": "unverified", "backlog": 2, "attempts": []}


def test_people_see_the_last_ten_attempts_and_what_is_wrong() -> None:
    attempts = [
        wire.PushAttempt(time=f"2024-03-05T10:20:{second:02}.000Z", messages=2, milliseconds=57, bytes=212, status=200)
        for second in range(11)
    ]
    failed = wire.PushAttempt(time="2024-03-05T10:20:30.000Z", messages=1, milliseconds=9, bytes=99, error="no answer")
    status = wire.PushStatus(
        push_status="it failed",
        state="retrying",
        backlog=0,
        circuit="closed",
        batch=1,
        next_attempt="2024-03-05T10:20:33.310Z",
        error=BROKEN,
        last_error=BROKEN,
        delivered=22,
        deliveries=11,
        failed=1,
        dead=0,
        attempts=[*attempts, failed],
    )

    shown = push_status_text(status).splitlines()

    assert shown[:7] == [
        "state         retrying",
        "push status   it failed",
        "backlog       0",
        "circuit       closed",
        "batch         1",
        "next attempt  2024-03-05T10:20:33.310Z",
        "last error    2024-03-05T10:20:30.007Z could not send status 503 come\\nback",
    ]
    assert shown[-11].split() == ["ATTEMPT", "STATUS", "MS", "MESSAGES", "BYTES", "ERROR"]
    assert shown[-10].startswith("2024-03-05T10:20:02.000Z")
    assert shown[-1].split() == ["2024-03-05T10:20:30.000Z", "-", "9", "1", "99", "no", "answer"]
    assert "dead letters" not in push_status_text(status)
    assert "dead letters  3" in push_status_text(msgspec.structs.replace(status, dead=3))


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
