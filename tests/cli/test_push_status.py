import json

import msgspec

from ams.cli.subscriptions import push_status_text
from ams.client import wire
from tests.cli.conftest import Ams

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
