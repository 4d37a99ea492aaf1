"""`ams bench`: how fast a service is, seen from here, by the client that programs use.

Each caller is a thread with its own connections. Unless a topic is named, one is made and deleted at the end.
"""

import math
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Annotated

import msgspec

from ams.cli.arguments import option
from ams.cli.command import CommandGroup, OptionSet, Session, deleting
from ams.cli.output import note
from ams.client import Client, Message
from ams.client.client import Topic
from ams.client.errors import ClientError

app = CommandGroup(
    "ams bench publish --seconds 10 --connections 8 --batch 100",
    "ams bench consume --messages 100000",
    "ams bench roundtrip --seconds 5 -o json",
)

LOOK_SECONDS = 1.0
MAX_ERRORS = 20  # errors before the first answer, after which --messages is given up


@dataclass(frozen=True, slots=True)
class Load(OptionSet):
    """How long to measure, and with which messages."""

    seconds: Annotated[float, option("How long to measure.", min=0.1)] = 10.0
    messages: Annotated[int | None, option("End after so many messages, however long it takes.", min=1)] = None
    size: Annotated[int, option("Bytes of data of each message.", min=1, max=1_000_000)] = 200


Batch = Annotated[int, option("Messages in each request.", min=1, max=10_000)]
Callers = Annotated[int, option("Callers at a time, each with a connection.", min=1, max=1000)]
OfTopic = Annotated[str | None, option("Publish to this topic, which stays.", metavar="TOPIC")]


class BenchResult(msgspec.Struct, frozen=True):
    """Result of a benchmark; times in milliseconds, of requests, or of messages for a round trip."""

    what: str
    messages: int
    bytes: int
    requests: int
    errors: int
    seconds: float
    messages_per_second: float
    megabytes_per_second: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float
    last_error: str = ""


@dataclass(slots=True)
class CallTally:
    """Counts of all callers; thread-safe."""

    size: int
    most: int | None
    until: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)
    took: list[float] = field(default_factory=list)
    there: float = math.inf  # messages that there are to consume
    messages: int = 0
    errors: int = 0
    last_error: str = ""
    began: float = field(default_factory=time.perf_counter)

    @property
    def is_over(self) -> bool:
        """True if no more requests shall be sent."""
        enough = self.messages >= self.most if self.most is not None else time.perf_counter() >= self.until
        return enough or self.messages >= self.there or self.stopped.is_set()

    def repeat(self, send: Callable[[], int | None]) -> None:
        """Send requests until it is over; `send` returns the messages of one, or None if it does not count."""
        while not self.is_over:
            began = time.perf_counter()
            try:
                count = send()
            except ClientError as error:
                self.fail(error)
                continue
            if count is not None:
                with self.lock:
                    self.took.append(time.perf_counter() - began)
                    self.messages += count

    def fail(self, error: ClientError) -> None:
        """Count a refused request, and pause, as a program would."""
        with self.lock:
            self.errors += 1
            self.last_error = error.message
            if self.most is not None and not self.took and self.errors >= MAX_ERRORS:
                self.stopped.set()  # the number of messages would never be reached
        self.stopped.wait(0.1)

    def result(self, what: str) -> BenchResult:
        """Return what was measured."""
        seconds = max(time.perf_counter() - self.began, 1e-9)
        times = sorted(each * 1000 for each in self.took) or [0.0]
        cuts = quantiles(times, n=1000, method="inclusive") if len(times) > 1 else times * 999
        return BenchResult(
            what=what, messages=self.messages, bytes=self.messages * self.size, requests=len(self.took),
            errors=self.errors, seconds=round(seconds, 3), messages_per_second=round(self.messages / seconds, 1),
            megabytes_per_second=round(self.messages * self.size / seconds / 1e6, 3), p50=round(cuts[499], 3),
            p90=round(cuts[899], 3), p99=round(cuts[989], 3), p999=round(cuts[998], 3), max=round(times[-1], 3),
            last_error=self.last_error,
        )  # fmt: skip


@app.does()
def publish(session: Session, load: Load, batch: Batch = 100, connections: Callers = 4, topic: OfTopic = None) -> None:
    """Publish as fast as the service takes it."""
    with _topic(session) if topic is None else nullcontext(session.client.project(session.project).topic(topic)) as to:
        request = [Message(os.urandom(load.size)) for _ in range(batch)]

        def caller(client: Client, tally: CallTally) -> None:
            place = client.project(session.project).topic(to.name)
            tally.repeat(lambda: len(place.publish(request)))

        _measure(session, "publish", load, connections, caller)


@app.does()
def consume(session: Session, load: Load, batch: Batch = 100) -> None:
    """Pull and acknowledge what lies there: messages are published first, as many as are to be consumed."""
    count = load.messages or 100_000
    with _subscribed_topic(session) as to:
        note(f"publishing {count} messages")
        request = [Message(os.urandom(load.size)) for _ in range(1000)]
        for start in range(0, count, 1000):
            to.publish(request[: count - start])

        def caller(client: Client, tally: CallTally) -> None:
            place = client.project(session.project).subscription(to.name)
            tally.there = count

            def consume_batch() -> int:
                found = place.pull(batch, wait=False)
                if found:
                    place.acknowledge(found)
                return len(found)

            tally.repeat(consume_batch)

        _measure(session, "consume", load, 1, caller)


@app.does()
def roundtrip(session: Session, load: Load) -> None:
    """Publish one message after the other, and measure until a consumer that waits has each."""
    with _subscribed_topic(session) as to:
        message = Message(os.urandom(load.size))

        def caller(client: Client, tally: CallTally) -> None:
            place = client.project(session.project).topic(to.name)
            arrived, taken = threading.Event(), threading.Event()

            def take() -> None:
                with session.at.client() as other:
                    source = other.project(session.project).subscription(to.name)
                    while not taken.is_set():
                        try:
                            if found := source.pull(1):
                                arrived.set()
                                source.acknowledge(found)
                        except ClientError as error:
                            tally.fail(error)

            consumer = threading.Thread(target=take, daemon=True)
            consumer.start()

            def send() -> int | None:
                arrived.clear()
                place.publish([message])
                while not arrived.wait(0.1) and not tally.is_over:
                    pass
                return 1 if arrived.is_set() else None

            tally.repeat(send)
            taken.set()
            consumer.join()

        _measure(session, "roundtrip", load, 1, caller)


def _measure(
    session: Session, what: str, load: Load, connections: int, caller: Callable[[Client, CallTally], None]
) -> None:
    tally = CallTally(load.size, load.messages, time.perf_counter() + load.seconds)

    def run() -> None:
        with session.at.client() as client:
            caller(client, tally)

    callers = [threading.Thread(target=run, daemon=True) for _ in range(connections)]
    with _stopping(tally):
        tally.began = time.perf_counter()
        for each in callers:
            each.start()
        while any(each.is_alive() for each in callers):
            callers[0].join(LOOK_SECONDS)
            if sys.stderr.isatty():
                rate = tally.messages / (time.perf_counter() - tally.began)
                print(f"\r{tally.messages:,} messages, {rate:,.0f}/s ", end="", file=sys.stderr, flush=True)
        for each in callers:
            each.join()
    result = tally.result(what)
    session.show(result, _fields(result))
    if result.errors and not result.requests:
        raise ClientError(f"no request was answered: {result.last_error}")


@contextmanager
def _stopping(tally: CallTally) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the measurement, not the program, so that it cleans up and reports."""
    before = {each: signal.signal(each, lambda *_: tally.stopped.set()) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _fields(result: BenchResult) -> dict[str, str]:
    if sys.stderr.isatty():
        print(file=sys.stderr)
    times = (f"{name} {getattr(result, name):,.1f}" for name in ("p50", "p90", "p99", "p999", "max"))
    return {
        result.what: f"{result.messages:,} messages in {result.requests:,} requests, {result.seconds:,.1f} s",
        "messages a second": f"{result.messages_per_second:,.0f}",
        "MB a second": f"{result.megabytes_per_second:,.2f}",
        "milliseconds": "  ".join(times),
        "errors": f"{result.errors:,}, the last: {result.last_error}" if result.errors else "",
    }


@contextmanager
def _topic(session: Session) -> Iterator[Topic]:
    topic = session.client.project(session.project).topic(f"bench-{secrets.token_hex(6)}")
    topic.create()
    with deleting(topic.name, topic.delete):
        yield topic


@contextmanager
def _subscribed_topic(session: Session) -> Iterator[Topic]:
    """Make a topic with a subscription of the same name."""
    with _topic(session) as topic:
        subscription = session.client.project(session.project).subscription(topic.name)
        subscription.create(topic.name)
        with deleting(subscription.name, subscription.delete):
            yield topic
