"""Creates projects, topics, subscriptions and messages before a measurement."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import uvloop

from bench.callers import publish_body
from bench.connection import Address, Pieces, SerialClient, connect, request
from bench.processes import Failed, Service

CONNECTIONS = 16
ACK_DEADLINE = 600
"""Seconds, the maximum: no measurement may fail because it was slow."""


def project(service: Service, name: str) -> str:
    send(service, "POST", [(f"projects/{name}", b"{}")])
    return f"projects/{name}"


def topics(service: Service, project: str, prefix: str, count: int) -> list[str]:
    """Create topics PREFIX-0, PREFIX-1 ...; return their paths."""
    paths = [f"{project}/topics/{prefix}-{number}" for number in range(count)]
    send(service, "PUT", ((path, b"") for path in paths))
    return paths


def subscriptions(
    service: Service, topics: Sequence[str], count: int, name: str = "sub", *, parallel: bool = False
) -> list[str]:
    """Create `count` subscriptions, going round over the topics; return their paths.

    They start at the current ends of their topics; `name` distinguishes them from earlier ones.
    """
    chosen = [topics[number % len(topics)] for number in range(count)]
    paths = [f"{topic.replace('/topics/', '/subscriptions/')}-{name}-{number}" for number, topic in enumerate(chosen)]
    asked = {"ackDeadlineSeconds": ACK_DEADLINE, **({"type": "parallel"} if parallel else {})}
    bodies = (msgspec.json.encode({"topic": topic, **asked}) for topic in chosen)
    send(service, "PUT", zip(paths, bodies, strict=True))
    return paths


def fill(service: Service, topics: Sequence[str], messages: int, *, per_request: int = 1000, size: int = 1024) -> None:
    def publishes() -> Iterator[tuple[str, bytes]]:
        for first in range(0, messages, per_request):
            body = publish_body(min(per_request, messages - first), size, seed=first // per_request % 4)
            for topic in topics:
                yield f"{topic}:publish", body

    send(service, "POST", publishes())


def seek(service: Service, places: Iterable[tuple[str, int]]) -> None:
    send(service, "POST", ((f"{name}:modifyOffset", b'{"offset":%d}' % offset) for name, offset in places))


def spread(service: Service, subscriptions: Sequence[str], messages: int) -> None:
    """Seek subscriptions of one topic of so many messages to evenly spaced offsets."""
    step = messages // len(subscriptions)
    seek(service, ((name, number * step) for number, name in enumerate(subscriptions)))


def send(service: Service, method: str, bodies: Iterable[tuple[str, bytes]]) -> None:
    """Send bodies, each to its path below `/v1/`; raise `Failed` for any answer but 200."""
    requests = (request(method, f"/v1/{path}", service.token, body) for path, body in bodies)

    async def send_all() -> None:
        await asyncio.gather(*(_send_some(service.url, requests) for _ in range(CONNECTIONS)))

    uvloop.run(send_all())


async def _send_some(url: str, requests: Iterator[Pieces]) -> None:
    asker = SerialClient(await connect(Address.of(url)))
    try:
        for each in requests:
            answer = await asker.ask(each)
            if answer.status != 200:
                raise Failed(f"{each[0].split(b' HTTP')[0].decode()} was answered {answer.status}")
    finally:
        asker.close()
