"""Consumers that are Google's client for Python, by streams: their callbacks acknowledge, fail, dawdle, and forget."""

import asyncio
import base64
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
from google.api_core.exceptions import RetryError
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeStatus
from google.cloud.pubsub_v1.subscriber.message import Message
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from tests.faults.attempts import Attempt, Held
from tests.faults.history import History
from tests.faults.http_client import PROJECT, Client, Traffic
from tests.faults.parallel import laws
from tests.faults.parallel import scene as parallel
from tests.faults.parallel.attempts import worked
from tests.faults.parallel.laws import Parallel, ParallelEnding, TakeOvers
from tests.faults.parallel.observed import Moment, Observer, as_told
from tests.faults.payload import is_poisoned, name_of

TOPIC = "google"
LEASE = 10
"""Seconds that the clients ask for, always: the least there can be on a stream."""
EACH = 2
"""Clients of a subscription."""
MOST = 200
SOON = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500))
"""A channel looks for the service again before the next kill."""


def kinds_of(topic: str) -> tuple[Parallel, ...]:
    return tuple(each._replace(deadline=LEASE) for each in parallel.kinds_of(topic))


KINDS = kinds_of(TOPIC)


class Subscriber:
    """One of Google's clients on one subscription; messages that are poisoned fail always."""

    def __init__(self, kind: Parallel, observer: Observer, chance: random.Random) -> None:
        self._kind, self._observer, self._random = kind, observer, chance
        self._subscribe: Callable[[], Any] = lambda: None
        self._stream: Any = None
        self._is_stopping = False
        self._channel: Any = None
        self.has_whims = True

    def start(self, channel: grpc.Channel) -> None:
        """Begin to consume by a channel of its own, which connects again by itself, as often as something is killed."""
        self._channel = channel
        channel = grpc.intercept_channel(channel, self._observer)
        client = pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        control = pubsub_v1.types.FlowControl(
            max_messages=MOST, min_duration_per_lease_extension=LEASE, max_duration_per_lease_extension=LEASE
        )
        path = f"{PROJECT.removeprefix('/v1/')}/subscriptions/{self._kind.name}"
        self._subscribe = partial(
            client.subscribe, path, self._handle, flow_control=control, await_callbacks_on_shutdown=True
        )
        self._begin()

    def violations(self) -> Iterator[str]:
        """Yield why it has ended by itself, which it may not."""
        if self._stream is not None and self._stream.done():
            yield f"the client of subscription {self._kind.name} ended: {self._stream.exception(0)!r}"

    def stop(self) -> None:
        """End it; it gives back what it has not begun with. Why it had ended before is told by `violations`."""
        self._is_stopping = True
        if self._stream is not None:
            self._stream.cancel()
            with suppress(Exception, CancelledError):
                self._stream.result()
            self._channel.close()

    def _begin(self) -> None:
        self._stream = self._subscribe()
        self._stream.add_done_callback(self._begin_again)

    def _begin_again(self, ended: Any) -> None:
        """Subscribe anew when the library has given up, as programs do.

        It does when a call has failed for a minute, also if each time the service was killed just then.
        """
        if not self._is_stopping and isinstance(ended.exception(0), RetryError):
            self._begin()

    def _handle(self, message: Message) -> None:
        if is_poisoned(name_of(message.attributes, base64.b64encode(message.data).decode())):
            message.nack()
            return
        mood = self._random.random() if self.has_whims else 1.0
        if mood < 0.005:
            message.drop()  # is forgotten: it comes again when its lease has ended
        elif mood < 0.05:
            message.nack()
        else:
            if mood < 0.1:
                time.sleep(self._random.uniform(0, 0.5))
            self._acknowledge(message)

    def _acknowledge(self, message: Message) -> None:
        if not self._kind.exactly_once:
            message.ack()
            return
        started = time.monotonic()

        def note(answer: Any) -> None:
            if answer.exception() is None and answer.result() is AcknowledgeStatus.SUCCESS:
                self._observer.confirmed(message.ack_id, started)

        message.ack_with_response().add_done_callback(note)


class Streams:
    """A plain subscription, an exactly-once one and a keyed one of a topic, and two clients of each."""

    def __init__(
        self, topic: str, history: History, now: Callable[[], Moment], traffic: Traffic, chance: random.Random
    ) -> None:
        self.kinds: Sequence[Parallel] = kinds_of(topic)
        self._history, self._now, self._traffic, self._chance = history, now, traffic, chance
        self._clients: list[Subscriber] = []
        self._ended: list[str] = []

    async def start(self, admin: Client, channel: Callable[[], grpc.Channel]) -> None:
        """Make the subscriptions, and begin to consume, each client by a channel of its own."""
        await parallel.prepare(admin, self.kinds)
        self._clients = [
            Subscriber(
                kind,
                Observer(f"{kind.name}-g{number}", kind, self._history, self._now, self._traffic),
                random.Random(self._chance.random()),
            )
            for kind in self.kinds
            for number in range(EACH)
        ]
        for each in self._clients:
            each.start(channel())

    async def work_to_the_end(self, admin: Client) -> None:
        """Return when nothing is left, or after a while."""
        for each in self._clients:
            each.has_whims = False
        await parallel.wait_for_end(admin, self.kinds)
        self._ended = [sentence for each in self._clients for sentence in each.violations()]

    async def stop(self) -> None:
        await stop(self._clients)

    def violations(
        self, held: Sequence[Held], attempts: Sequence[Attempt], left: ParallelEnding, *, in_cluster: bool = True
    ) -> Iterator[str]:
        """Yield the broken laws; `held` is the topic."""
        told = as_told(self.kinds, attempts) if in_cluster else attempts
        for each in laws.with_more_attempts(self.kinds) if in_cluster else self.kinds:
            yield from laws.violations(each, held, told, left)
        yield from self._ended

    @property
    def worked(self) -> int:
        """How many messages were acknowledged for sure."""
        return worked(as_told(self.kinds, self._history.attempts), *(each.name for each in self.kinds))

    @property
    def taken_over(self) -> int:
        """How often another node took one of the subscriptions over."""
        return sum(len(TakeOvers(each, self._history.attempts)) for each in self.kinds)


async def stop(subscribers: Sequence[Subscriber]) -> None:
    await asyncio.gather(*(asyncio.to_thread(each.stop) for each in subscribers))


def plain(address: str) -> grpc.Channel:
    """Return a channel to an emulator, or to the first of several that answers: `ipv4:HOST:PORT,HOST:PORT`."""
    return grpc.insecure_channel(address, options=SOON)
