"""The HTTP API as an upstream of workers: a reference service, and one that says when there are messages."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from ams.app.push_server.upstream import POLLS_OF_ONE, SHARD, HttpUpstream, Polling, Waking, kind_of
from ams.client import AsyncClient
from ams.client import errors as client_errors
from ams.core.messages import Fragment
from ams.core.push_config import PushConfig
from ams.push.upstream import Away, Gone, NotTaken, Pulled, Refused, Target, UpstreamError, Verdict
from tests.support.reference_ams import TOKEN, ReferenceAms, error, reference_ams
from tests.support.waiting import wait_until_async

CONFIG = PushConfig("http_endpoint", endpoint="https://example.com/in", verified=True)


def target(path: str, deadline: int = 10) -> Target:
    return Target(path, "/projects/p/topics/t", CONFIG, deadline, id=f"id-of-{path.rpartition('/')[2]}")


@contextlib.asynccontextmanager
async def pulling(reference: ReferenceAms, token: str = TOKEN) -> AsyncIterator[HttpUpstream]:
    async with AsyncClient(reference.url, token, retry=None) as client:
        waiting = Waking(client, Polling(random.Random(1)), seconds=1)
        yield HttpUpstream(client, waiting)
        await waiting.close()


async def pull(upstream: HttpUpstream, of: Target, most: int = 10, size: int = 10**6) -> list[Pulled]:
    """Pull until there is something, as a worker does."""
    return list(await wait_until_async(lambda: upstream.pull(of, max_messages=most, max_bytes=size)))


@pytest.mark.parametrize("waits", [False, True])
async def test_messages_come_in_order_and_the_last_one_acknowledges_them(reference: ReferenceAms, waits: bool) -> None:
    reference.waits = waits
    path = reference.add("s")
    reference.publish(path, "YQ==", "Yg==", "Yw==")
    async with pulling(reference) as upstream:
        first = await pull(upstream, target(path), 2)
        await upstream.acknowledge(target(path), first[-1])
        rest = await pull(upstream, target(path), 2)

    assert [message.offset for message in first + rest] == [0, 1, 2]
    assert first[0] == Pulled(0, "0", "2026-01-01T00:00:00Z", Fragment(b'"attributes":{"k":"v"},"data":"YQ=="'))
    assert reference.acked == {path: 2}


async def test_an_ordering_key_is_part_of_the_message(reference: ReferenceAms) -> None:
    path = reference.add("s")
    reference.ordering_key = 'bed "4"'
    reference.publish(path, "YQ==")
    async with pulling(reference) as upstream:
        [pulled] = await pull(upstream, target(path))

    assert pulled.fragment == b'"orderingKey":"bed \\"4\\"","attributes":{"k":"v"},"data":"YQ=="'


async def test_no_more_bytes_are_returned_than_fit_but_one_message_at_least(reference: ReferenceAms) -> None:
    path = reference.add("s")
    reference.publish(path, "a" * 100, "b" * 100, "c" * 100)
    async with pulling(reference) as upstream:
        assert len(await pull(upstream, target(path), size=300)) == 2
        assert len(await pull(upstream, target(path), size=1)) == 1


async def test_a_service_that_says_when_is_pulled_only_then(reference: ReferenceAms) -> None:
    reference.waits = True
    path = reference.add("s")
    async with pulling(reference) as upstream:
        waiting = asyncio.create_task(pull(upstream, target(path)))
        await wait_until_async(lambda: reference.count("push:wait"))
        assert reference.count(":pull") == 0

        reference.publish(path, "YQ==")
        [message] = await waiting
        await upstream.acknowledge(target(path), message)
        assert await upstream.pull(target(path), max_messages=10, max_bytes=1) == ()
        assert reference.count(":pull") == 1


async def test_many_idle_subscriptions_wait_in_few_requests(reference: ReferenceAms) -> None:
    reference.waits = True
    paths = [reference.add(f"s{number}") for number in range(3 * SHARD)]
    async with pulling(reference) as upstream:
        waiting = [asyncio.create_task(pull(upstream, target(path))) for path in paths]
        await wait_until_async(lambda: reference.count("push:wait") >= 3)
        assert reference.count("push:wait") <= 6

        reference.publish(paths[7], "YQ==")
        [message] = await waiting[7]
        assert message.offset == 0
        assert reference.count(":pull") == 1
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_service_that_cannot_say_when_is_asked_less_and_less_often(reference: ReferenceAms) -> None:
    path, clock = reference.add("s"), asyncio.get_running_loop().time
    async with pulling(reference) as upstream:
        began = clock()
        waiting = asyncio.create_task(pull(upstream, target(path)))
        await wait_until_async(lambda: reference.count(":pull") >= 4)
        took = clock() - began
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    assert reference.count("push:wait") == 1
    assert took >= 0.85 * sum(POLLS_OF_ONE.nominal(number) for number in range(3))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(404, "project doesn't exist", "NOT_FOUND"), Gone),
        (error(404, "Subscription doesn't exist", "NOT_FOUND"), Gone),
        (error(404, "Topic doesn't exist", "NOT_FOUND"), Refused),
        (error(401, "Unauthorized", "UNAUTHORIZED"), Refused),
        (error(403, "Access to this resource is forbidden", "FORBIDDEN"), Refused),
        (error(409, "Push functionality is currently disabled", "CONFLICT"), Refused),
        (error(409, "Subscription's topic doesn't exist", "CONFLICT"), Refused),
        (error(409, "Message is not the next one of the subscription", "CONFLICT"), NotTaken),
        (error(400, "Invalid Pull Parameters Arguments", "INVALID_ARGUMENT"), Refused),
        (error(500, "Backend Error", "INTERNAL_SERVER_ERROR"), Away),
        (error(503, "busy", "UNAVAILABLE"), Away),
        ((502, "<html>bad gateway"), Away),
        ((404, "404 page not found"), Away),
    ],
)
def test_p21_a_failed_pull_is_told_by_what_can_be_done_about_it(
    answer: tuple[int, str], kind: type[UpstreamError]
) -> None:
    assert kind_of(client_errors.refusal(answer[0], answer[1].encode())) is kind


async def test_an_answer_that_is_none_is_told_without_the_token(reference: ReferenceAms) -> None:
    path = reference.add("s")
    reference.faults[":pull"] = [(200, "no JSON")]
    async with pulling(reference) as upstream:
        with pytest.raises(Away) as raised:
            await pull(upstream, target(path))

    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(408, "ack timeout", "TIMEOUT"), NotTaken),
        (error(500, "no ack pending", "INTERNAL_SERVER_ERROR"), NotTaken),
        (error(500, "wrong ack", "INTERNAL_SERVER_ERROR"), NotTaken),
        (error(500, "Backend Error", "INTERNAL_SERVER_ERROR"), Away),
        (error(404, "Subscription doesn't exist", "NOT_FOUND"), Gone),
    ],
)
async def test_an_acknowledgement_that_failed_is_told_in_the_words_of_the_contract(
    reference: ReferenceAms, answer: tuple[int, str], kind: type[UpstreamError]
) -> None:
    path = reference.add("s")
    reference.publish(path, "YQ==")
    reference.faults[":acknowledge"] = [answer]
    async with pulling(reference) as upstream:
        [message] = await pull(upstream, target(path))
        with pytest.raises(kind) as raised:
            await upstream.acknowledge(target(path), message)

    said = (
        f"an error occurred while trying to acknowledge message with ackId {path[1:]}:0 from subscription {path} from"
    )
    assert str(raised.value).startswith(said)


async def test_a_service_that_is_not_there_is_away() -> None:
    async with reference_ams() as gone:
        path = gone.add("s")
    async with pulling(gone) as upstream:
        with pytest.raises(Away):
            await pull(upstream, target(path))
        with pytest.raises(Away):
            await upstream.dead_letter(target(path), Pulled(0, "0", "", b'"data":""'), Verdict("HTTP 422", 3, 422))  # type: ignore[arg-type]


def test_patience_is_the_deadline_and_never_nothing_and_endless_where_leases_are_extended() -> None:
    upstream = HttpUpstream(None, Polling(random.Random(1)))  # type: ignore[arg-type]  # asks nobody
    parallel = replace(target("s"), is_parallel=True)
    assert [upstream.patience(each) for each in (target("s", 600), target("s", 0), parallel)] == [600.0, 1.0, None]


def test_files_and_certificates_that_cannot_be_used_are_not_tried_at_once_again() -> None:
    assert kind_of(client_errors.Untrusted("x")) is Refused
    assert kind_of(client_errors.Unreachable("x")) is Away
