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


@pytest.fixture
def sub(ams: Ams, project: str) -> str:
    """Make a topic with a subscription and three messages."""
    ams("topics", "create", "jobs")
    assert ams("subs", "create", "reader", "--topic", "jobs", "--ack-deadline", "60").returncode == 0
    assert ams("publish", "jobs", stdin="one\ntwo\nthree\n").stdout.split() == ["0", "1", "2"]
    return "reader"


@pytest.mark.parametrize("deadline", [0, 600])
def test_a_deadline_is_what_was_said_also_0(ams: Ams, project: str, deadline: int) -> None:
    ams("topics", "create", "jobs")

    made = ams("subs", "create", "reader", "--topic", "jobs", "--ack-deadline", str(deadline), "-o", "json")

    assert json.loads(made.stdout)["ackDeadlineSeconds"] == deadline
    assert json.loads(ams("subs", "show", "reader", "-o", "json").stdout)["ackDeadlineSeconds"] == deadline


def test_the_topic_may_follow_the_name_of_the_subscription(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")

    made = ams("subs", "create", "reader", "jobs", "-o", "json")

    assert json.loads(made.stdout)["topic"] == f"/projects/{project}/topics/jobs"


PARALLEL = ("subs", "create", "reader", "jobs", "--type", "parallel")


def test_a_parallel_subscription_is_made_shown_and_changed(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("topics", "create", "dead")

    made = ams(*PARALLEL, "--retry-min", "0.5s", "--retry-max", "1m", "--dead-letter-topic", "dead",
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("subs", "create", "r", "jobs", "--ordering"),
            "those are options of a parallel subscription: give --type parallel",
        ),
        ((*PARALLEL, "--retry-min", "soon"), "'soon' is no duration such as 10s, 0.5s or 7d"),
        (("subs", "update", "reader"), "say what to change"),
        (
            ("subs", "update", "reader", "--unset", "filter"),
            "--unset 'filter' is none of retry, dead-letters, expiry, retention",
        ),
        (("subs", "update", "reader", "--retry-min", "1s", "--unset", "retry"), "what is set cannot be --unset too"),
    ],
)
def test_options_that_cannot_be_are_told(ams: Ams, arguments: tuple[str, ...], said: str) -> None:
    ran = ams(*arguments)

    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (2, f"ams: {said}")


@pytest.mark.parametrize("topics", [[], ["jobs", "--topic", "jobs"]])
def test_a_subscription_is_to_one_topic(ams: Ams, topics: list[str]) -> None:
    ran = ams("subs", "create", "reader", *topics)

    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == "ams: name one topic: ams subs create reader TOPIC, or --topic TOPIC"


@pytest.mark.parametrize(("option", "place"), [("--oldest", 0), ("--end", 3)])
def test_both_ends_of_a_topic_are_options_of_their_own(ams: Ams, sub: str, option: str, place: int) -> None:
    ams("subs", "seek", sub, "--to", "1")

    assert ams("subs", "seek", sub, option).stdout == f"subscription reader moved to {place}\n"


@pytest.mark.parametrize("places", [[], ["--end", "--oldest"], ["--end", "--to", "0"]])
def test_a_subscription_is_moved_to_one_place(ams: Ams, places: list[str]) -> None:
    ran = ams("subs", "seek", "reader", *places)

    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (2, "ams: give one of --to, --oldest, --end and --snapshot")


def test_a_subscription_is_listed_shown_changed_and_deleted(ams: Ams, sub: str) -> None:
    assert ams("subs", "list").stdout.splitlines()[1].split()[:3] == ["reader", "jobs", "60s"]
    assert ams("subs", "ack-deadline", sub, "20").returncode == 0
    assert json.loads(ams("subs", "show", sub, "-o", "json").stdout)["ackDeadlineSeconds"] == 20
    assert "deadline      20s" in ams("subs", "show", sub).stdout.splitlines()
    assert ams("subs", "acl", sub).stdout.split() == ["USER"]
    assert ams("subs", "set-acl", sub, "--none").returncode == 0
    assert ams("subs", "delete", sub).returncode == 0
    assert ams("subs", "offsets", sub).returncode == 4


@pytest.mark.parametrize(("to", "offset"), [("end", 3), ("oldest", 0), ("2", 2), ("2024-03-05", 0), ("2999-01-01", 3)])
def test_seeking_moves_the_subscription(ams: Ams, sub: str, to: str, offset: int) -> None:
    ams("subs", "seek", sub, "--to", "1")

    sought = ams("subs", "seek", sub, "--to", to, "-o", "json")

    assert json.loads(sought.stdout) == {"max": 3, "min": 0, "current": offset}
    assert json.loads(ams("subs", "offsets", sub, "-o", "json").stdout) == {"max": 3, "min": 0, "current": offset}


def test_a_place_that_is_not_there_moves_nothing(ams: Ams, sub: str) -> None:
    assert ams("subs", "seek", sub, "--to", "4").returncode == 1
    assert ams("subs", "offsets", sub).stdout.split() == ["oldest", "0", "next", "0", "end", "3", "backlog", "3"]


def test_of_a_parallel_subscription_it_is_shown_what_is_under_way_until_it_is_detached(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("subs", "create", "worker", "jobs", "--type", "parallel")
    for number in range(4):
        ams("publish", "jobs", "--data", str(number))
    pulled = json.loads(ams("pull", "worker", "--max", "3", "-o", "json").stdout)["receivedMessages"]
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


def test_push_is_configured_and_taken_back(ams: Ams, sub: str) -> None:
    url = "https://127.0.0.1:1/in"
    asked = ams("subs", "push-config", sub, "--url", url, "--retry", "slowstart", "--base64-decode", "-o", "json")

    config = json.loads(asked.stdout)["pushConfig"]
    assert (config["pushEndpoint"], config["retryPolicy"]) == (url, {"type": "slowstart", "period": 0})
    assert config["base64Decode"]
    shown = ams("subs", "show", sub).stdout
    assert config["verificationHash"] in shown
    assert config["authorizationHeader"]["value"] not in shown
    assert ams("subs", "push-config", sub, "--none").returncode == 0
    assert "push" not in ams("subs", "show", sub).stdout


def test_an_endpoint_that_cannot_be_verified_is_told(ams: Ams, sub: str) -> None:
    ams("subs", "push-config", sub, "--url", "https://127.0.0.1:1/in")

    verified = ams("subs", "verify-push", sub)

    assert verified.returncode == 3
    assert verified.stderr == "ams: Endpoint verification failed.127.0.0.1 is not a public address\n"


def test_mattermost_needs_no_verifying(ams: Ams, sub: str) -> None:
    ams("subs", "push-config", sub, "--mattermost", "https://chat.example/hooks/x", "--username", "bot")

    shown = ams("subs", "show", sub).stdout.splitlines()
    assert "push          https://chat.example/hooks/x" in shown
    assert any(line.startswith("push status   ") for line in shown)
    assert ams("subs", "verify-push", sub).returncode == 5


def test_dead_letters_and_retries_are_configured(ams: Ams, sub: str) -> None:
    ams("topics", "create", "dead")
    dead_letters = ("--dead-letter-topic", "dead", "--max-attempts", "7")

    asked = ams("subs", "push-config", sub, "--url", "https://a.example", "--retry", "exponential", *dead_letters)

    assert "dead letters  to dead after 7 attempts" in asked.stdout.splitlines()
    config = json.loads(ams("subs", "show", sub, "-o", "json").stdout)["pushConfig"]
    assert config["deadLetterTopic"].endswith("/topics/dead")
    assert (config["maxDeliveryAttempts"], config["retryPolicy"]) == (7, {"type": "exponential", "period": 1000})
    refused = ams("subs", "push-config", sub, "--url", "https://a.example", "--dead-letter-topic", "none")
    assert (refused.returncode, refused.stderr) == (4, "ams: Topic doesn't exist\n")


def test_deliveries_at_a_time_of_a_parallel_subscription_are_configured(ams: Ams, project: str) -> None:
    ams("topics", "create", "wide")
    ams("subs", "create", "lanes", "wide", "--type", "parallel")
    ams("subs", "push-config", "lanes", "--url", "https://a.example", "--max-outstanding", "7")

    assert json.loads(ams("subs", "show", "lanes", "-o", "json").stdout)["pushConfig"]["maxOutstanding"] == 7


def test_a_secret_is_shown_once_and_never_again(ams: Ams, sub: str, service: LiveService) -> None:
    ams("subs", "push-config", sub, "--url", "https://a.example")

    first = ams("subs", "push-secret", sub).stdout.split()
    second = json.loads(ams("subs", "push-secret", sub, "--keep", "1h", "-o", "json").stdout)

    assert (first[0], len(first), second["secret"][:6]) == ("secret", 2, "whsec_")
    assert second["previousValidUntil"]
    said = "".join(
        ams(*command, "-o", "json").stdout
        for command in (("subs", "show", sub), ("subs", "list"), ("doctor", sub), ("status",), ("topics", "list"))
    )
    files = [path for path in service.data.rglob("*") if path.is_file()]
    log = service.data.parent / f"{service.data.name}.stderr"
    held = b"".join(path.read_bytes() for path in (*files, log)) + said.encode()
    for secret in (first[1], second["secret"]):
        assert secret.removeprefix("whsec_").encode() not in held
        assert b64decode(secret.removeprefix("whsec_")) not in held


@pytest.mark.parametrize("keep", ["", "soon", "-1s", "31d", "1.5s"])
def test_a_time_to_keep_a_secret_is_up_to_30_days(ams: Ams, sub: str, keep: str) -> None:
    asked = ams("subs", "push-secret", sub, "--keep", keep)

    assert asked.returncode == 2
    assert "is no duration of whole seconds from 0s to 30d" in asked.stderr


def test_only_deliveries_to_an_endpoint_have_a_secret(ams: Ams, sub: str) -> None:
    assert ams("subs", "push-secret", sub, "--keep", "0s").returncode == 5


@pytest.mark.parametrize(
    "options", [[], ["--none", "--url", "https://a"], ["--url", "https://a", "--mattermost", "https://b"]]
)
def test_a_push_configuration_says_one_thing(ams: Ams, sub: str, options: list[str]) -> None:
    asked = ams("subs", "push-config", sub, *options)

    assert asked.returncode == 2
    assert "give one of --url, --mattermost and --none" in asked.stderr


BROKEN = wire.PushError(time="2024-03-05T10:20:30.007Z", what="send", detail="come\nback", status=503)


def test_a_subscription_that_waits_for_its_endpoint_is_shown(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("subs", "create", "reader", "--topic", "jobs")
    ams("subs", "push-config", "reader", "--url", "https://receiver.example/in")
    ams("publish", "jobs", stdin="one\ntwo\n")

    told = ams("sub", "push-status", "reader")

    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines() == ["state    unverified", "backlog  2"]
    found = json.loads(ams("subs", "push-status", "reader", "-o", "json").stdout)
    assert found == {"pushStatus": "", "state": "unverified", "backlog": 2, "attempts": []}


def test_a_subscription_that_is_pulled_from_has_no_status(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("subs", "create", "reader", "--topic", "jobs")

    told = ams("subs", "push-status", "reader")

    assert told.returncode != 0
    assert "Subscription is not in push mode" in told.stderr
    assert ams("subs", "push-status", "none").returncode == 4


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
