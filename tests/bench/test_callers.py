"""Scripts: which requests follow which answers."""

import base64
import json

import pytest

from bench.callers import (
    Acknowledge,
    Consume,
    Lease,
    Publish,
    Pull,
    Script,
    Unexpected,
    ack_body,
    publish_body,
    scripts,
)
from bench.connection import Response

GOOD = Response(200)
NAME = "projects/P/subscriptions/s"


def pulled(*numbers: int) -> Response:
    body = json.dumps(
        {"receivedMessages": [{"ackId": f"{NAME}:{number}"} for number in numbers]}, separators=(",", ":")
    )
    return Response(200, body.encode(), len(body))


def answer(script: Script, given: Response) -> str:
    return shown(script.send(given).request)


def shown(request: tuple[bytes, ...]) -> str:
    path = request[0].split(b" ")[1].decode()
    return f"{path} {request[1].decode()}" if len(request) > 1 else path


def test_topics_are_shared_among_the_connections_and_visited_in_turn() -> None:
    first, second = scripts(Publish(["projects/P/topics/a", "projects/P/topics/b", "projects/P/topics/c"]), 2, "token")

    visited = [next(first).request[0]] + [first.send(GOOD).request[0] for _ in range(2)]

    assert [b"topics/a:" in each for each in visited] == [True, False, True]
    assert [b"topics/c:" in each for each in visited] == [False, True, False]
    assert b"topics/b:" in next(second).request[0]


def test_a_publish_body_holds_messages_of_the_size_asked_for() -> None:
    messages = json.loads(publish_body(3, 100, seed=1))["messages"]

    assert [len(base64.b64decode(each["data"])) for each in messages] == [100, 100, 100]


def test_each_publish_with_keys_has_another_one_and_is_a_whole_request() -> None:
    [script] = scripts(Publish(["projects/P/topics/a"], keys=True), 1, "token")

    first, second = (b"".join(step.request) for step in (next(script), script.send(GOOD)))

    heads = [each.partition(b"\r\n\r\n")[0].split(b"\r\n") for each in (first, second)]
    assert heads[0][:-1] == heads[1][:-1]
    assert heads[0][-1].startswith(b"idempotency-key: ")
    assert heads[0][-1] != heads[1][-1]
    assert first.partition(b"\r\n\r\n")[2] == publish_body(1, 1024, seed=0)


def test_acknowledging_seeks_and_pulls_first_and_does_not_count_that() -> None:
    [script] = scripts(Acknowledge([NAME], batch=2), 1, "token")

    seek = next(script)
    pull = script.send(GOOD)
    first = script.send(pulled(7, 8))

    assert (seek.counted, pull.counted, first.counted) == (False, False, True)
    assert shown(first.request).endswith(ack_body(NAME, 7).decode())
    assert answer(script, GOOD).endswith(ack_body(NAME, 8).decode())


def test_a_pull_that_answers_fewer_messages_than_asked_is_no_measurement() -> None:
    [script] = scripts(Pull([NAME], messages=3), 1, "token")
    next(script)

    with pytest.raises(Unexpected, match="got 2"):
        script.send(pulled(0, 1))


def leased(*numbers: int) -> Response:
    received = [{"ackId": f"{NAME}:{number}-1.0.1.7.abcdef"} for number in numbers]
    return Response(200, json.dumps({"receivedMessages": received}, separators=(",", ":")).encode())


def test_consumers_of_one_parallel_subscription_acknowledge_each_id_and_one_begins_anew() -> None:
    first, second = scripts(Lease([NAME], messages=2), 2, "token")

    acknowledged = [next(first), first.send(leased(0, 1))][1]
    next(second)
    pulls_again = second.send(leased())
    first.send(GOOD)
    begins_anew = first.send(leased())

    ids = f'{{"ackIds":["{NAME}:0-1.0.1.7.abcdef","{NAME}:1-1.0.1.7.abcdef"]}}'
    assert shown(acknowledged.request) == f"/v1/{NAME}:acknowledge {ids}"
    assert acknowledged.messages == 2
    assert shown(pulls_again.request).startswith(f"/v1/{NAME}:pull")
    assert shown(begins_anew.request).startswith(f"/v1/{NAME}:modifyOffset")
    assert not begins_anew.counted


def test_a_consumer_acknowledges_the_last_message_and_counts_all() -> None:
    [script] = scripts(Consume([NAME], messages=3), 1, "token")
    next(script)

    step = script.send(pulled(4, 5, 6))

    assert step.messages == 3
    assert shown(step.request).endswith(ack_body(NAME, 6).decode())


def test_a_consumer_at_the_end_begins_again_or_waits() -> None:
    [again] = scripts(Consume([NAME], messages=3), 1, "token")
    [follower] = scripts(Consume([NAME], messages=3, follow=True), 1, "token")
    next(again)
    pull = shown(next(follower).request)

    assert ":modifyOffset" in answer(again, pulled())
    assert answer(follower, pulled()) == pull
