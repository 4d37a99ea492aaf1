"""Pulls of a parallel subscription that wait, over the lane and over ASGI."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.hot_packets import MESSAGE, NOW, PUBLISH, said
from tests.support.two_ways import Way, one_way, request
from tests.support.waiting import wait_until_async

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
    await way.told([request("PUT", ONE, b'{"topic": "projects/P/topics/T", "type": "parallel"}')])
    await way.told([request("POST", ONE + ":modifyAcl", b'{"authorized_users":["u"]}')])
    await way.told([said(PULL, NOW)])
    await way.told([said(ACKNOWLEDGE, b'{"ackIds":["x"]}')])


def ids(*each: str, **more: object) -> bytes:
    return json.dumps({"ackIds": each, **more}).encode()


async def given(way: Way) -> str:
    """Publish a message and lease it; return its id."""
    await way.told([said(PUBLISH, MESSAGE)])
    answer, _ = await way.told([said(PULL, NOW)])
    [found] = ACK_ID.findall(answer)
    return str(found, "ascii")


async def waiting_pull(way: Way) -> "asyncio.Task[tuple[bytes, bool]]":
    pulling = asyncio.create_task(way.told([said(PULL, b"{}")]))
    await wait_until_async(lambda: way.made.deliverer.waiting == 1)
    return pulling


@pytest.mark.parametrize(
    ("verb", "more", "given_again"),
    [("acknowledge", {}, 0), ("nack", {}, 1), ("modifyAckDeadline", {"ackDeadlineSeconds": 60}, 0)],
)
async def test_a_body_may_name_as_many_messages_as_a_publish_has_bytes_for(
    way: Way, verb: str, more: dict[str, int], given_again: int
) -> None:
    body = ids(*[await given(way)] * 30_000, **more)
    assert len(body) > 2**20

    answer, _ = await way.told([request("POST", f"{ONE}:{verb}", body)])

    assert answer.startswith(b"HTTP/1.1 200 OK")
    again, _ = await way.told([said(PULL, NOW)])
    assert len(ACK_ID.findall(again)) == given_again


async def test_a_waiting_pull_is_woken_by_what_is_given_back(way: Way) -> None:
    held = await given(way)
    pulling = await waiting_pull(way)
    await way.told([request("POST", ONE + ":nack", ids(held))])

    answer, _ = await pulling
    [again] = ACK_ID.findall(answer)
    assert again.decode() != held
    assert again.decode().partition("-")[0] == held.partition("-")[0]


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
    await way.told([said(ACKNOWLEDGE, ids(held))])
    pulling = await waiting_pull(way)
    await way.told([request("POST", ONE + ":seek", b'{"offset":0}')])

    answer, _ = await pulling
    assert len(ACK_ID.findall(answer)) == 1
