"""Receiver, endpoints, subscriptions and publisher of the `push` case."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pybase64
import uvloop

from bench.connection import Address, SerialClient, connect, request
from bench.processes import Failed, Service
from bench.run import Bench
from tests.support.pushed import Api, Endpoint, pushed
from tests.support.receiving import Receiving, received

PROJECT = "PUSH"
PUBLISHERS = 16
"""Connections that publish; more than are busy at the same time at the rates of the cases."""
ARRIVE_SECONDS = 30.0


@dataclass(frozen=True)
class Receivers:
    """The receiver of deliveries."""

    receiving: Receiving

    def flags(self) -> list[str]:
        """Return the flags by which a service delivers here."""
        return ["--push-allow", "127.0.0.0/8", "--push-ca-file", self.receiving.ca]


@contextlib.contextmanager
def receivers(bench: Bench, more_ports: int = 0) -> Iterator[Receivers]:
    """Run a receiver with so many ports beside its first."""
    with bench.data_folder() as folder:
        folder.mkdir()
        with received(folder, more_ports=more_ports) as receiving:
            yield Receivers(receiving)


def make(service: Service, ca: str, endpoints: Sequence[Endpoint], **more: object) -> None:
    """Make topics and subscriptions and verify all endpoints; `more` of their push configurations."""

    async def make_all() -> None:
        async with Api(service.url, service.token, PROJECT) as api:
            await api.ask("", {})  # it may be there
            await pushed(api, ca, endpoints, more)

    uvloop.run(make_all())


def endpoints(bases: Iterator[str], name: str, count: int) -> list[Endpoint]:
    """Take so many addresses for endpoints that behave as the path of that name."""
    taken = itertools.islice(bases, count)
    return [Endpoint(f"{name}-{number}", f"{base}/{name}/{number}") for number, base in enumerate(taken)]


def topic(endpoint: Endpoint) -> str:
    """Return the path of an endpoint's topic."""
    return f"projects/{PROJECT}/topics/{endpoint.of}"


def publish(service: Service, topics: Sequence[str], rate: float, count: int) -> None:
    """Publish `count` messages at a rate, going round over the topics; each holds the time when it was due.

    An open loop: it does not wait for responses. Raises `Failed` when one is refused.
    """
    uvloop.run(_publish(service, topics, rate, count))


async def _publish(service: Service, topics: Sequence[str], rate: float, count: int) -> None:
    free: asyncio.Queue[SerialClient] = asyncio.Queue()
    askers = [SerialClient(await connect(Address.of(service.url))) for _ in range(PUBLISHERS)]
    for asker in askers:
        free.put_nowait(asker)
    began = time.time()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            due = began + number / rate
            await asyncio.sleep(due - time.time())
            group.create_task(_publish_one(service, free, topics[number % len(topics)], due))
    for asker in askers:
        asker.close()


async def _publish_one(service: Service, free: asyncio.Queue[SerialClient], topic: str, due: float) -> None:
    data = pybase64.b64encode(repr(due).encode()).decode()
    body = b'{"messages":[{"data":"%b"}]}' % data.encode()
    asker = await free.get()
    answer = await asker.ask(request("POST", f"/v1/{topic}:publish", service.token, body))
    free.put_nowait(asker)
    if answer.status != 200:
        raise Failed(f"a publish was answered {answer.status}")


def steady_latencies(
    service: Service, to: Receivers, path: str, topics: Sequence[str], rate: float, seconds: float
) -> list[float]:
    """Publish at a rate for a while; return the `latencies` of that alone, without what came to the path before."""
    to.receiving.forget()
    count = int(rate * seconds)
    publish(service, topics, rate, count)
    return latencies(to.receiving, path, count)


class _Held(msgspec.Struct):
    data: str


class _Body(msgspec.Struct):
    message: _Held


_body = msgspec.json.Decoder(_Body)


def latencies(receiver: Receiving, path: str, count: int) -> list[float]:
    """Return the seconds from due to delivered of the messages that came to a path, sorted, once there are so many.

    What comes only after a while is lost: raises `Failed`.
    """
    give_up = time.monotonic() + ARRIVE_SECONDS
    while len(came := receiver.requests(path)) < count:
        if time.monotonic() > give_up:
            raise Failed(f"{len(came)} of {count} deliveries came to {path}")
        time.sleep(0.1)
    return sorted(each.time - float(pybase64.b64decode(_body.decode(each.body).message.data)) for each in came)
