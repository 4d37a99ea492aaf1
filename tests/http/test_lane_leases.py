"""Pulls of a parallel subscription that wait, over the lane and over ASGI."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.hot_packets import MESSAGE, NOW, PUBLISH, said
from tests.support.two_ways import Way, one_way, request, until

ONE = "/projects/P/subscriptions/W"
PULL, ACKNOWLEDGE = (f"/v1{ONE}:{verb}".encode() for verb in ("pull", "acknowledge"))
ACK_ID = re.compile(rb'"ackId":"([^"]+)"')


@pytest.fixture(params=[True, False], ids=["lane", "ASGI"])
async def way(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Way]:
    async with one_way(tmp_path / "data", lane=request.param, pull_wait=5, keep_alive_seconds=75.0) as opened:
        await make(opened)
        yield opened


async def make(way: Way) -> None:
    """Make a parallel subscription, and the heads of its pulls and acknowledgements known."""
    wanted = {"topic": "projects/P/topics/T", "type": "parallel"}
    answer, _ = await way.told([request("PUT", ONE, json.dumps(wanted).encode())])
    assert b"200 OK" in answer
    await way.told([request("POST", ONE + ":modifyAcl", b'{"authorized_users":["u"]}')])
    await way.told([said(PULL, NOW)])
    await way.told([said(ACKNOWLEDGE, b'{"ackIds":["x"]}')])


async def given(way: Way) -> str:
    """Publish a message and lease it; return its id."""
    await way.told([said(PUBLISH, MESSAGE)])
    answer, _ = await way.told([said(PULL, NOW)])
    [found] = ACK_ID.findall(answer)
    return str(found, "ascii")


async def waiting_pull(way: Way) -> "asyncio.Task[tuple[bytes, bool]]":
    pulling = asyncio.create_task(way.told([said(PULL, b"{}")]))
    await until(lambda: way.made.deliverer.waiting == 1)
    return pulling


@pytest.mark.parametrize(("verb", "many"), [("acknowledge", 5000), ("acknowledge", 30_000), ("nack", 30_000)])
async def test_a_body_may_name_as_many_messages_as_a_publish_has_bytes_for(way: Way, verb: str, many: int) -> None:
    held = await given(way)
    body = json.dumps({"ackIds": [held] * many}).encode()
    assert len(body) > 2**20 or many == 5000

    answer, _ = await way.told([request("POST", f"{ONE}:{verb}", body)])

    assert answer.startswith(b"HTTP/1.1 200 OK")
    again, _ = await way.told([said(PULL, NOW)])
    assert len(ACK_ID.findall(again)) == (1 if verb == "nack" else 0)


async def test_an_extension_may_name_as_many_too(way: Way) -> None:
    body = json.dumps({"ackIds": [await given(way)] * 30_000, "ackDeadlineSeconds": 60}).encode()
    answer, _ = await way.told([request("POST", f"{ONE}:modifyAckDeadline", body)])
    assert answer.startswith(b"HTTP/1.1 200 OK")


async def test_a_waiting_pull_is_woken_by_what_is_given_back(way: Way) -> None:
    held = await given(way)
    pulling = await waiting_pull(way)
    await way.told([request("POST", ONE + ":nack", json.dumps({"ackIds": [held]}).encode())])

    answer, _ = await pulling
    [again] = ACK_ID.findall(answer)
    assert str(again, "ascii") != held
    assert str(again, "ascii").partition("-")[0] == held.partition("-")[0]


async def test_a_waiting_pull_is_woken_by_a_lease_that_ends(way: Way) -> None:
    held = await given(way)
    pulling = await waiting_pull(way)
    way.clock.advance(10_300)
    await way.made.working.keeper.look(lambda _: None)  # what it would do by itself in so long
    answer, _ = await pulling

    assert len(ACK_ID.findall(answer)) == 1
    late, _ = await way.told([said(ACKNOWLEDGE, json.dumps({"ackIds": [held]}).encode())])
    assert b"408" in late.split(b"\r\n")[0]


@pytest.mark.parametrize("ending", ["DELETE", "detach"])
async def test_a_waiting_pull_ends_with_its_subscription(way: Way, ending: str) -> None:
    await given(way)
    pulling = await waiting_pull(way)
    gone = request("DELETE", ONE) if ending == "DELETE" else request("POST", ONE + ":detach")
    await way.told([gone])
    answer, _ = await pulling

    said_why = b"Subscription doesn't exist" if ending == "DELETE" else b"Subscription is detached"
    assert said_why in answer


async def test_a_waiting_pull_is_woken_by_a_seek(way: Way) -> None:
    held = await given(way)
    await way.told([said(ACKNOWLEDGE, json.dumps({"ackIds": [held]}).encode())])
    pulling = await waiting_pull(way)
    await way.told([request("POST", ONE + ":seek", b'{"offset":0}')])

    answer, _ = await pulling
    assert len(ACK_ID.findall(answer)) == 1


async def test_ids_by_tens_of_thousands_are_taken(way: Way) -> None:
    held = await given(way)
    body = json.dumps({"ackIds": [held] * 40_000}).encode()
    assert len(body) > 2**20
    answer, _ = await way.told([said(ACKNOWLEDGE, body)])

    assert b"200 OK" in answer
    again, _ = await way.told([said(PULL, NOW)])
    assert ACK_ID.findall(again) == []
