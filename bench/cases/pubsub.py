"""Google's Pub/Sub, by Google's client for Python: against a service over gRPC that stores nothing."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from statistics import median

import grpc

from ams.pubsub import protos
from bench.processes import ROOT, Failed, Server, Service
from bench.pubsub_client import SUBSCRIPTION
from bench.report import Goal, Result, at_least, at_most, percentile, progress
from bench.run import Bench

SUBSCRIBERS = 4
STREAMS = 1000
IDLE_SECONDS = 30.0
"""In which each stream pings once, as those of clients do."""
MOST_A_SECOND = 15_000
"""Messages for subscribers, in every second that they measure."""
FLAGS = ("--pubsub-port", "0", "--pubsub-emulator")


def pubsub(bench: Bench) -> Iterator[Result]:
    """Yield all results."""
    seconds = max(bench.plan.seconds, 3.0)
    with (
        bench.data_folder() as data,
        Server(["bench.pubsub_bare"], data.with_name("bare.stderr")) as bare,
        bench.service(*FLAGS) as service,
    ):
        _ask("prepare", service.pubsub)
        yield _published(bench, service.pubsub, bare.url, seconds)
        _ask("fill", service.pubsub, str(int(bench.plan.pairs * (seconds + 3) * MOST_A_SECOND)))
        yield _streamed(bench, service.pubsub, bare.url, seconds)
    with bench.service(*FLAGS) as service:
        _ask("prepare", service.pubsub)
        yield from _latency(service.pubsub, bench.plan.latencies)
        yield _idle(service)


def _published(bench: Bench, address: str, bare: str, seconds: float) -> Result:
    pairs = bench.in_turn(
        "publish by Google's client, default batching",
        lambda: _rate("publish", address, seconds),
        lambda: _rate("publish", bare, seconds),
    )
    return _compared("pubsub-publish", {"bytes": 1024}, pairs, at_least(0.6))


def _streamed(bench: Bench, address: str, bare: str, seconds: float) -> Result:
    pairs = bench.in_turn(
        f"stream to {SUBSCRIBERS} subscribers",
        lambda: _rates("consume", address, seconds),
        lambda: _rates("consume", bare, seconds),
    )
    return _compared("pubsub-stream", {"subscribers": SUBSCRIBERS, "bytes": 1024}, pairs, at_least(0.5))


def _compared(case: str, params: dict[str, int | str], pairs: list[tuple[float, float]], goal: Goal) -> Result:
    values = {
        "messages_s": median(ours for ours, _ in pairs),
        "bare_messages_s": median(theirs for _, theirs in pairs),
    }
    ratio = median(ours / theirs for ours, theirs in pairs)
    return Result(case, params, values, ratio, "messages/s of a service that stores nothing", goal)


def _latency(address: str, times: int) -> Iterator[Result]:
    progress("  from publish to callback, idle")
    found = sorted(map(float, _ask("latency", address, str(times)).split()))
    p50, p99 = percentile(found, 50), percentile(found, 99)
    values = {"p50_ms": p50, "p99_ms": p99}
    yield Result("pubsub-latency-p50", {"times": times}, values, p50 / 10, "10 ms", at_most(1))
    yield Result("pubsub-latency-p99", {"times": times}, values, p99 / 50, "50 ms", at_most(1))


def _idle(service: Service) -> Result:
    progress(f"  {STREAMS} idle streams")
    share = asyncio.run(_idle_share(service))
    return Result("pubsub-idle", {"streams": STREAMS}, {"core": share}, share / 0.05, "5 % of a core", at_most(1))


async def _idle_share(service: Service) -> float:
    """Return the share of a core that a service takes with idle streams that ping as clients do."""
    channel = grpc.aio.insecure_channel(service.pubsub)
    calls = []
    for _ in range(STREAMS):
        call = channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            lambda request: request.SerializeToString(),
            protos.StreamingPullResponse.FromString,
        )()
        await call.write(protos.StreamingPullRequest(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=60))
        await call.read()
        calls.append(call)
    began, before = time.perf_counter(), service.processor_seconds()
    for call in calls:
        await call.write(protos.StreamingPullRequest())
        await asyncio.sleep(IDLE_SECONDS / STREAMS)
    share = (service.processor_seconds() - before) / (time.perf_counter() - began)
    for call in calls:
        call.cancel()
    await channel.close()
    return share


def _rate(what: str, address: str, seconds: float) -> float:
    return float(_ask(what, address, str(seconds)))


def _rates(what: str, address: str, seconds: float) -> float:
    clients = [_client(what, address, str(seconds)) for _ in range(SUBSCRIBERS)]
    return sum(float(_said(each)) for each in clients)


def _ask(*args: str) -> str:
    return _said(_client(*args))


def _client(*args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "bench.pubsub_client", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def _said(client: "subprocess.Popen[str]") -> str:
    out, errors = client.communicate(timeout=300)
    if client.returncode:
        raise Failed(f"Google's client ended with {client.returncode}: {errors.strip().splitlines()[-1:]}")
    return out
