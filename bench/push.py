"""Push: how fast one backlog is delivered, against a bare loop of the HTTP client; and latency to 100 endpoints.

The bare loop is a process of its own, `python -m bench.push`: httpcore with its pool of kept connections, on the event
loop that the service has, with one request in flight.
"""

import asyncio
import contextlib
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from statistics import median

import httpcore
import msgspec
import pybase64
import uvloop

from bench import preparing
from bench.callers import Publish
from bench.connection import Address, SerialClient, connect, request
from bench.processes import Failed, Service, answered
from bench.report import Result, at_least, at_most, percentile
from bench.run import Bench
from tests.support.pushed import Api, Endpoint, create_pushes, create_subscriptions, verify_endpoints
from tests.support.receiving import Receiving, run_receiver

PROJECT = "PUSH"
PUBLISHERS = 16
"""Connections that publish; more than are busy at the same time at the rates of the cases."""
ARRIVE_SECONDS = 30.0
ONE, BATCH = 1, 100
RATE = 10_000
"""Maximum messages a second that a backlog lasts for; a faster service would empty it."""
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
    with receivers(bench) as to, bench.service(*_flags(to)) as service:
        body = _sample(service, to)
        seconds = max(bench.plan.seconds, LEAST_SECONDS)
        messages = int(rate * (seconds + 2 * WARM_UP_SECONDS))
        rounds = iter(_prepare(bench, service, to, batch, messages))

        def ours() -> float:
            return uvloop.run(_delivered(service, to.ca, next(rounds), messages, seconds))

        def bare() -> float:
            job = Job(to.url("/ok/bare?quiet"), to.ca, body, seconds)
            return answered("bench.push", job, float, BARE_SECONDS + 2 * seconds)

        pairs = bench.in_turn(f"{batch} in a body, beside the bare loop", ours, bare)
    return Result(
        case,
        {"messages": batch},
        {"messages_s": median(each for each, _ in pairs), "library_requests_s": median(each for _, each in pairs)},
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
            await create_subscriptions(api, quiet, {"maxMessages": batch})

    uvloop.run(make_all())
    preparing.fill(service, [topic(quiet[0])], messages, size=SIZE)
    return quiet


async def _delivered(service: Service, ca: str, endpoint: Endpoint, messages: int, seconds: float) -> float:
    """Let a subscription be delivered for a while; return how many messages a second were acknowledged."""
    path = f"/subscriptions/{endpoint.name}"
    async with Api(service.url, service.token, PROJECT) as api:

        async def acknowledged() -> tuple[int, float]:
            offsets = await api.must(f"{path}:offsets", None, method="GET")
            return offsets["current"], time.perf_counter()

        await verify_endpoints(api, ca, [endpoint])
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
    with receivers(bench, more_ports=SUBSCRIPTIONS) as to, bench.service(*_flags(to)) as service:
        targets = [Endpoint(f"ok-{number}", f"{base}/ok/{number}") for number, base in enumerate(to.more(""))]
        make(service, to.ca, targets)
        topics = [topic(each) for each in targets]
        [idle] = preparing.topics(service, f"projects/{PROJECT}", "idle", 1)
        publish(service, topics, SUBSCRIPTIONS)  # connections are made
        latencies(to, SUBSCRIPTIONS)

        def deliveries() -> list[float]:
            to.forget()
            publish(service, topics, int(LATENCY_RATE * seconds))
            return latencies(to, int(LATENCY_RATE * seconds))

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


def _flags(to: Receiving) -> list[str]:
    return ["--push-allow", "127.0.0.0/8", "--push-ca-file", to.ca]


@contextlib.contextmanager
def receivers(bench: Bench, more_ports: int = 0) -> Iterator[Receiving]:
    """Run a receiver with so many ports beside its first."""
    with bench.data_folder() as folder:
        folder.mkdir()
        with run_receiver(folder, more_ports=more_ports) as receiving:
            yield receiving


def make(service: Service, ca: str, endpoints: Sequence[Endpoint], **more: object) -> None:
    """Make topics and subscriptions and verify all endpoints; `more` of their push configurations."""

    async def make_all() -> None:
        async with Api(service.url, service.token, PROJECT) as api:
            await api.ask("", {})  # it may be there
            await create_pushes(api, ca, endpoints, more)

    uvloop.run(make_all())


def topic(endpoint: Endpoint) -> str:
    return f"projects/{PROJECT}/topics/{endpoint.of}"


def publish(service: Service, topics: Sequence[str], count: int) -> None:
    """Publish `count` messages at `LATENCY_RATE`, going round over the topics; each holds the time when it was due.

    An open loop: it does not wait for responses. Raises `Failed` when one is refused.
    """

    async def publish_all() -> None:
        free: asyncio.Queue[SerialClient] = asyncio.Queue()
        askers = [SerialClient(await connect(Address.of(service.url))) for _ in range(PUBLISHERS)]
        for asker in askers:
            free.put_nowait(asker)
        began = time.time()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                due = began + number / LATENCY_RATE
                await asyncio.sleep(due - time.time())
                group.create_task(_publish_one(service, free, topics[number % len(topics)], due))
        for asker in askers:
            asker.close()

    uvloop.run(publish_all())


async def _publish_one(service: Service, free: asyncio.Queue[SerialClient], topic: str, due: float) -> None:
    data = pybase64.b64encode(repr(due).encode()).decode()
    body = b'{"messages":[{"data":"%b"}]}' % data.encode()
    asker = await free.get()
    answer = await asker.ask(request("POST", f"/v1/{topic}:publish", service.token, body))
    free.put_nowait(asker)
    if answer.status != 200:
        raise Failed(f"a publish was answered {answer.status}")


def latencies(receiver: Receiving, count: int) -> list[float]:
    """Return the seconds from due to delivered of messages, sorted, once so many came.

    What comes only after a while is lost: raises `Failed`.
    """
    give_up = time.monotonic() + ARRIVE_SECONDS
    while len(came := receiver.requests("/ok/")) < count:
        if time.monotonic() > give_up:
            raise Failed(f"{len(came)} of {count} deliveries came")
        time.sleep(0.1)
    data = [(each.time, msgspec.json.decode(each.body)["message"]["data"]) for each in came]
    return sorted(at - float(pybase64.b64decode(due)) for at, due in data)


HEADERS = [(b"Content-Type", b"application/json")]


class Job(msgspec.Struct):
    url: str
    ca: str
    body: str
    seconds: float
    warm_up: float = 0.3


async def run(job: Job) -> float:
    """Return requests a second after the warm-up."""
    async with httpcore.AsyncConnectionPool(ssl.create_default_context(cafile=job.ca)) as pool:
        await _post_for(pool, job, job.warm_up)
        began = time.perf_counter()
        return await _post_for(pool, job, job.seconds) / (time.perf_counter() - began)


async def _post_for(pool: httpcore.AsyncConnectionPool, job: Job, seconds: float) -> int:
    until, requests = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        answer = await pool.request("POST", job.url, headers=HEADERS, content=job.body.encode())
        if answer.status != 200:
            sys.exit(f"bench.push: answered {answer.status}")
        requests += 1
    return requests


if __name__ == "__main__":
    done = uvloop.run(run(msgspec.json.decode(sys.stdin.buffer.read(), type=Job)))
    sys.stdout.buffer.write(msgspec.json.encode(done))
