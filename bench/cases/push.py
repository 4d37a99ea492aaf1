"""Push: how fast one backlog is delivered, against a bare loop of the HTTP client; and latency to 100 endpoints."""

import asyncio
import time
from collections.abc import Iterator
from statistics import median

import uvloop

from bench import preparing
from bench.callers import Publish
from bench.processes import Failed, Service, answered
from bench.push import PROJECT, endpoints, latencies, make, publish, receivers, steady_latencies, topic
from bench.push_bare import Job
from bench.report import Result, at_least, at_most, percentile
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
SUBSCRIPTIONS = 100
"""Subscriptions of the measurement of latency, each with its own endpoint."""
LATENCY_RATE = 100.0
"""Publishes a second over all of them."""
MIN_LATENCY_SECONDS = 5.0
P99_SECONDS = 0.1


def push(bench: Bench) -> Iterator[Result]:
    """Yield results for bodies of one message, for bodies of a hundred, and for latency."""
    yield _measured(bench, "push-one", ONE, RATE, GOAL_ONE)
    yield _measured(bench, "push-batch", BATCH, BATCH_RATE, GOAL_BATCH)
    yield from _latency(bench)


def _measured(bench: Bench, case: str, batch: int, rate: int, goal: float) -> Result:
    with receivers(bench) as to, bench.service(*to.flags()) as service:
        body = _sample(service, to.receiving)
        seconds = max(bench.plan.seconds, LEAST_SECONDS)
        messages = int(rate * (seconds + 2 * WARM_UP_SECONDS))
        rounds = iter(_prepare(bench, service, to.receiving, batch, messages))

        def ours() -> float:
            return _delivered(service, to.receiving.ca, next(rounds), messages, seconds)

        def bare() -> float:
            job = Job(to.receiving.url("/ok/bare?quiet"), to.receiving.ca, body, seconds)
            return answered("bench.push_bare", job, float, BARE_SECONDS + 2 * seconds)

        pairs = bench.in_turn(f"{batch} in a body, beside the bare loop", ours, bare)
    return Result(
        case,
        {"messages": batch},
        {
            "messages_s": median(each for each, _ in pairs),
            "library_requests_s": median(each for _, each in pairs),
        },
        median(each / bare for each, bare in pairs),
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


def _latency(bench: Bench) -> Iterator[Result]:
    """Yield p50 against the p50 of a publish on the idle service, as both wait for one sync; and p99."""
    seconds = max(bench.plan.seconds, MIN_LATENCY_SECONDS)
    with receivers(bench, more_ports=SUBSCRIPTIONS) as to, bench.service(*to.flags()) as service:
        targets = endpoints(iter(to.receiving.more("")), "ok", SUBSCRIPTIONS)
        make(service, to.receiving.ca, targets)
        topics = [topic(each) for each in targets]
        [idle] = preparing.topics(service, f"projects/{PROJECT}", "idle", 1)
        publish(service, topics, LATENCY_RATE, SUBSCRIPTIONS)  # connections are made
        latencies(to.receiving, "/ok/", SUBSCRIPTIONS)

        def deliveries() -> list[float]:
            return steady_latencies(service, to, "/ok/", topics, LATENCY_RATE, seconds)

        def requests() -> float:
            return bench.load(service, Publish([idle]), 1).p50

        pairs = bench.in_turn("deliveries of a hundred subscriptions, beside publishes", deliveries, requests)
    p50 = median(percentile(each, 50) for each, _ in pairs)
    p99 = median(percentile(each, 99) for each, _ in pairs)
    request = median(each for _, each in pairs)
    params: dict[str, int | str] = {"subscriptions": SUBSCRIPTIONS}
    figures = {"p50_ms": 1000 * p50, "p99_ms": 1000 * p99, "idle_request_p50_ms": 1000 * request}
    yield Result("push-latency", params, figures, p50 / request, "p50 of a publish on the idle service", at_most(10))
    yield Result("push-latency-p99", params, figures, p99 / P99_SECONDS, "100 ms", at_most(1))
