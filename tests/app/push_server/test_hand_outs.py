"""Messages of a parallel subscription for the workers of `ams push`, leased of a real service over HTTP."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

import pytest

from ams.app.push_server.upstream import HttpHandOuts, LongPoller, Poller
from ams.client import AsyncClient, Client, Message, wire
from ams.core.clock import Milliseconds
from ams.core.push_config import PushConfig
from ams.push.upstream import Gone, NotTaken, PushHandOut, Target, UpstreamError, Verdict
from tests.support.served import WORKER_TOKEN, InProcessService, in_process_service
from tests.support.waiting import wait_until_async

TARGET = Target(
    "/projects/P/subscriptions/S", "/projects/P/topics/T",
    PushConfig("http_endpoint", endpoint="https://example.com/in", verified=True), 10, is_parallel=True,
)  # fmt: skip
REFUSED = Verdict("no such bed", 1, 422)
WITH_LETTERS = wire.ParallelOptions(dead_letter_policy=wire.DeadLetterPolicy("L", 5))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    data = tmp_path_factory.mktemp("service") / "ams-data"
    with in_process_service(data, push_worker_token=WORKER_TOKEN, push_inside=False) as running:
        yield running


@dataclass(frozen=True)
class LeaseSetup:
    service: InProcessService
    admin: Client
    hand_outs: HttpHandOuts

    async def publish(self, *payloads: bytes) -> None:
        topic = self.admin.project("P").topic("T")
        await asyncio.to_thread(topic.publish, [Message(each) for each in payloads])

    async def lease(self, most: int = 10, size: int = 2**20) -> Sequence[PushHandOut]:
        await self.hand_outs.close()
        return await self.hand_outs.lease(TARGET, max_messages=most, max_bytes=size)

    async def fail(self, hand_out: PushHandOut, attempts: int = 1) -> None:
        await self.hand_outs.fail(TARGET, hand_out, Milliseconds(3000), REFUSED._replace(attempts=attempts))

    async def current(self) -> int:
        return (await asyncio.to_thread(self.admin.project("P").subscription("S").offsets)).current


@pytest.fixture
async def lease_setup(service: InProcessService, request: pytest.FixtureRequest) -> AsyncIterator[LeaseSetup]:
    options = getattr(request, "param", wire.ParallelOptions())
    push = wire.PushConfig(push_endpoint="https://example.com/in")
    with Client(service.run.base_url, service.token) as admin:
        admin.call(wire.create_project("P"))
        admin.project("P").topic("T").create()
        admin.project("P").topic("L").create()
        admin.project("P").subscription("letters").create("L")
        admin.call(wire.create_subscription("P", "S", "T", push=push, parallel=options))
        async with AsyncClient(service.run.base_url, WORKER_TOKEN, retry=None) as client:
            chance = random.Random(1)
            waiting = LongPoller(client, chance, seconds=1)
            yield LeaseSetup(service, admin, HttpHandOuts(client, waiting, Poller(chance)))
        admin.call(wire.delete_project("P"))


def attempts_and_offsets(hand_outs: Sequence[PushHandOut]) -> list[tuple[int, int]]:
    return [(hand_out.attempt, each.offset) for hand_out in hand_outs for each in hand_out.messages]


async def test_what_is_leased_is_acknowledged_one_by_one(lease_setup: LeaseSetup) -> None:
    await lease_setup.publish(b"a", b"b", b"c")
    (hand_out,) = await lease_setup.lease()
    assert attempts_and_offsets([hand_out]) == [(1, 0), (1, 1), (1, 2)]

    await lease_setup.hand_outs.acknowledge(TARGET, hand_out.part(1, 3))

    assert await lease_setup.current() == 0
    assert lease_setup.admin.call(wire.get_push_status("P", "S")).backlog == 1
    await lease_setup.hand_outs.acknowledge(TARGET, hand_out.part(0, 1))
    assert await lease_setup.current() == 3
    assert await lease_setup.lease() == []


async def test_what_is_not_settled_is_leased_again_when_it_is_released(lease_setup: LeaseSetup) -> None:
    await lease_setup.publish(b"a", b"b", b"c")
    (hand_out,) = await lease_setup.lease()
    await lease_setup.hand_outs.acknowledge(TARGET, hand_out.part(0, 1))
    await lease_setup.fail(hand_out.part(1, 2))

    lease_setup.hand_outs.release(TARGET, hand_out)

    assert attempts_and_offsets(await lease_setup.lease()) == [(1, 2)]


async def test_what_goes_beyond_the_bytes_is_given_back(lease_setup: LeaseSetup) -> None:
    await lease_setup.publish(b"a" * 100, b"b" * 100, b"c" * 100)
    first = await lease_setup.lease(size=300)
    assert attempts_and_offsets(first) == [(1, 0), (1, 1)]
    assert attempts_and_offsets(await lease_setup.lease()) == [(1, 2)]


async def test_what_a_worker_that_ends_had_asked_for_is_given_back(lease_setup: LeaseSetup) -> None:
    await lease_setup.publish(b"a")
    asking = asyncio.create_task(lease_setup.lease())
    await asyncio.sleep(0)  # the request is on its way
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking

    assert attempts_and_offsets(await lease_setup.lease()) == [(1, 0)]


async def test_what_failed_waits_as_long_as_push_says(lease_setup: LeaseSetup) -> None:
    await lease_setup.publish(b"a")
    (hand_out,) = await lease_setup.lease()
    await lease_setup.fail(hand_out)
    lease_setup.service.clock.advance(2800)
    assert await lease_setup.lease() == []

    lease_setup.service.clock.advance(400)
    assert attempts_and_offsets(await lease_setup.lease()) == [(2, 0)]


@pytest.mark.parametrize("lease_setup", [WITH_LETTERS], indirect=True)
async def test_what_is_put_aside_has_the_words_of_the_endpoint(lease_setup: LeaseSetup) -> None:
    await lease_setup.publish(b"a")
    for attempt in range(1, 6):
        (hand_out,) = await lease_setup.lease()
        assert hand_out.attempt == attempt
        await lease_setup.fail(hand_out, attempt)
        lease_setup.service.clock.advance(3200)

    letters = lease_setup.admin.project("P").subscription("letters")
    (letter,) = await wait_until_async(lambda: asyncio.to_thread(letters.pull, 5))
    said = {name: letter.attributes[f"deadLetter{name}"] for name in ("Reason", "Attempts", "Status")}
    assert said == {"Reason": "no such bed", "Attempts": "5", "Status": "422"}


async def test_leases_that_are_over_are_not_taken(lease_setup: LeaseSetup) -> None:
    await lease_setup.publish(b"a")
    (hand_out,) = await lease_setup.lease()
    await lease_setup.hand_outs.extend(TARGET, hand_out, 40)
    lease_setup.service.clock.advance(39_000)
    await lease_setup.hand_outs.extend(TARGET, hand_out, 40)
    lease_setup.service.clock.advance(41_000)

    for asked in (
        lease_setup.hand_outs.acknowledge(TARGET, hand_out), lease_setup.fail(hand_out),
        lease_setup.hand_outs.extend(TARGET, hand_out, 40),
    ):  # fmt: skip
        with pytest.raises(NotTaken):
            await asked
    lease_setup.hand_outs.release(TARGET, hand_out)
    assert attempts_and_offsets(await lease_setup.lease()) == [(2, 0)]


async def test_a_subscription_that_is_gone_is_told(lease_setup: LeaseSetup) -> None:
    await lease_setup.publish(b"a")
    (hand_out,) = await lease_setup.lease()
    lease_setup.admin.project("P").subscription("S").delete()

    with pytest.raises(Gone):
        await lease_setup.lease()
    with pytest.raises(UpstreamError):
        await lease_setup.hand_outs.acknowledge(TARGET, hand_out)
    lease_setup.hand_outs.release(TARGET, hand_out)
    await lease_setup.hand_outs.close()
