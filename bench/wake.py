"""From a publish to the answer of a pull that waits for it."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import NamedTuple

import uvloop

from bench.callers import ack_body, ack_numbers, publish_body, pull_body
from bench.connection import Address, Response, SerialClient, connect, request
from bench.processes import Failed, Service
from bench.report import percentile

PAUSE_SECONDS = 0.005
"""How long a pull has waited when the message is published: longer than it takes to get there."""
PATIENCE_SECONDS = 10.0


class Wakes(NamedTuple):
    """Seconds from sending a publish to the answer of the pull that waits, and of the publish itself."""

    p50: float
    p99: float
    publish_p50: float


def wakes(
    service: Service, topics: Sequence[str], subscriptions: Sequence[str], tries: int, waiting: Service | None = None
) -> Wakes:
    """Publish and wait for it `tries` times, going round over the topics, each with its subscription.

    `waiting` is the node at which is waited, when it is another than the one that is published through.
    """
    pairs = itertools.islice(itertools.cycle(zip(topics, subscriptions, strict=True)), tries)
    return uvloop.run(_wakes(service, waiting or service, list(pairs)))


async def _wakes(service: Service, waiting: Service, pairs: list[tuple[str, str]]) -> Wakes:
    publisher = SerialClient(await connect(Address.of(service.url)))
    consumer = SerialClient(await connect(Address.of(waiting.url)))
    woken, published = [], []
    for topic, subscription in pairs:
        wake, publish = await _wake(publisher, consumer, service.token, topic, subscription)
        woken.append(wake)
        published.append(publish)
    publisher.close()
    consumer.close()
    woken.sort()
    published.sort()
    return Wakes(percentile(woken, 50), percentile(woken, 99), percentile(published, 50))


async def _wake(
    publisher: SerialClient, consumer: SerialClient, token: str, topic: str, subscription: str
) -> tuple[float, float]:
    pull = request("POST", f"/v1/{subscription}:pull", token, pull_body(1, wait=True))
    waiting = asyncio.create_task(_timed(consumer, pull))
    await asyncio.sleep(PAUSE_SECONDS)
    sent = time.perf_counter()
    _, answered = await _timed(publisher, request("POST", f"/v1/{topic}:publish", token, publish_body(1, 1024, seed=0)))
    async with asyncio.timeout(PATIENCE_SECONDS):
        answer, woken = await waiting
    numbers = ack_numbers(answer)
    if not numbers:
        raise Failed("a waiting pull was answered empty although a message was published")
    await consumer.ask(request("POST", f"/v1/{subscription}:acknowledge", token, ack_body(subscription, numbers[-1])))
    return woken - sent, answered - sent


async def _timed(asker: SerialClient, asked: Sequence[bytes]) -> tuple[Response, float]:
    answer = await asker.ask(asked)
    return answer, time.perf_counter()
