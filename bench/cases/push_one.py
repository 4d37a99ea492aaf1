"""One subscription with a backlog: how fast a fast receiver gets it, beside a bare loop of the same client."""

import asyncio
import time
from collections.abc import Iterator
from statistics import median

import uvloop

from bench import preparing
from bench.processes import Failed, Service, answered
from bench.push import PROJECT, make, receivers, topic
from bench.push_bare import Job, LoadResult
from bench.report import Result, at_least
from bench.run import Bench
from tests.support.pushed import Api, Endpoint, made, verified
from tests.support.receiving import Receiving

ONE, BATCH = 1, 100
RATE = 10_000
"""Messages a second that a backlog is made for; a faster service would find its end."""
BATCH_RATE = 100_000
SIZE = 1024
WARM_UP_SECONDS = 0.5
LEAST_SECONDS = 2.0
"""Acknowledgements come in bursts; a shorter time would count more or fewer of them."""
BARE_SECONDS = 30.0
GOAL_ONE, GOAL_BATCH = 0.5, 10.0


def push_one(bench: Bench) -> Iterator[Result]:
    """Yield the result for bodies of one message."""
    yield _measured(bench, "push-one", ONE, RATE, GOAL_ONE)


def push_batch(bench: Bench) -> Iterator[Result]:
    """Yield the result for bodies of a hundred."""
    yield _measured(bench, "push-batch", BATCH, BATCH_RATE, GOAL_BATCH)


def _measured(bench: Bench, case: str, batch: int, rate: int, goal: float) -> Result:
    with receivers(bench) as to, bench.service(*to.flags()) as service:
        body = _sample(service, to.receiving)
        seconds = max(bench.plan.seconds, LEAST_SECONDS)
        messages = int(rate * (seconds + 2 * WARM_UP_SECONDS))
        rounds = iter(_prepare(bench, service, to.receiving, batch, messages))

        def ours() -> float:
            return _delivered(service, to.receiving.ca, next(rounds), messages, seconds)

        def bare() -> LoadResult:
            job = Job(to.receiving.url("/ok/bare?quiet"), to.receiving.ca, body, seconds)
            return answered("bench.push_bare", job, LoadResult, BARE_SECONDS + 2 * seconds)

        pairs = bench.in_turn(f"{batch} in a body, beside the bare loop", ours, bare)
    return Result(
        case,
        {"messages": batch},
        {
            "messages_s": median(each for each, _ in pairs),
            "library_requests_s": median(each.library for _, each in pairs),
            "connection_requests_s": median(each.connection for _, each in pairs),
        },
        median(each / bare.library for each, bare in pairs),
        "requests/s of a bare loop of the HTTP client library, one message in each",
        at_least(goal),
    )


def _sample(service: Service, receiver: Receiving) -> str:
    """Return the body of a delivery of one message."""
    endpoint = Endpoint("sample", receiver.url("/ok/sample"))
    make(service, receiver.ca, [endpoint])
    preparing.fill(service, [topic(endpoint)], 1, size=SIZE)
    return receiver.wait(1, "/ok/sample")[0].body


def _prepare(bench: Bench, service: Service, receiver: Receiving, batch: int, messages: int) -> list[Endpoint]:
    """Make a backlog and, at its beginning, a subscription for each measurement, not yet verified."""
    quiet = [
        Endpoint(f"round-{number}", receiver.url(f"/ok/{number}?quiet"), "backlog")
        for number in range(bench.plan.pairs)
    ]

    async def make_all() -> None:
        async with Api(service.url, service.token, PROJECT) as api:
            await made(api, quiet, {"maxMessages": batch})

    uvloop.run(make_all())
    preparing.fill(service, [topic(quiet[0])], messages, size=SIZE)
    return quiet


def _delivered(service: Service, ca: str, endpoint: Endpoint, messages: int, seconds: float) -> float:
    """Let a subscription be delivered for a while; return how many messages a second were acknowledged."""
    return uvloop.run(_delivered_meanwhile(service, ca, endpoint, messages, seconds))


async def _delivered_meanwhile(service: Service, ca: str, endpoint: Endpoint, messages: int, seconds: float) -> float:
    path = f"/subscriptions/{endpoint.name}"
    async with Api(service.url, service.token, PROJECT) as api:

        async def acknowledged() -> tuple[int, float]:
            offsets = await api.must(f"{path}:offsets", None, method="GET")
            return offsets["current"], time.perf_counter()

        await verified(api, ca, [endpoint])
        await asyncio.sleep(WARM_UP_SECONDS)
        first, began = await acknowledged()
        await asyncio.sleep(seconds)
        last, ended = await acknowledged()
        await api.must(path, None, method="DELETE")
    if not first < last < messages:
        raise Failed(f"deliveries stood at {first}, and later at {last} of {messages}")
    return (last - first) / (ended - began)
