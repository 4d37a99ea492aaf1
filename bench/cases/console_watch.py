"""Ten pages of the console, each with a live view of a topic of its own: what they cost the service."""

import contextlib
import http.client
import itertools
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from statistics import median
from urllib.parse import urlsplit

from bench import preparing
from bench.callers import publish_body
from bench.processes import Failed, Service
from bench.report import Result, at_most
from bench.run import FULL, Bench

TABS = 10
SECONDS, QUICK_SECONDS = 20.0, 5.0
SETTLE_SECONDS = 2.0
EVERY = 1.0
"""Seconds between two publishes to each topic."""
CPU = 0.02
"""Of one core."""


def console_watch(bench: Bench) -> Iterator[Result]:
    """Yield the shares of a core that views take: while nothing happens, and while each topic gets a message a second.

    Both are what the same service takes with views, less what it takes without.
    """
    with bench.service() as service:
        topics = preparing.topics(service, preparing.project(service, "BENCH"), "topic", TABS)
        pages = list(zip(topics, preparing.subscriptions(service, topics, TABS), strict=True))
        yield _result(bench, "console-watch", service, [], pages)
        yield _result(bench, "console-watch-busy", service, topics, pages)


def _result(bench: Bench, case: str, service: Service, published: list[str], pages: list[tuple[str, str]]) -> Result:
    seconds = SECONDS if bench.plan == FULL else QUICK_SECONDS
    pairs = bench.in_turn(
        f"{TABS} views, {len(published)} messages a second",
        lambda: _share(service, published, pages, seconds),
        lambda: _share(service, published, [], seconds),
    )
    more = median(views - none for views, none in pairs)
    figures = {"cpu_percent": 100 * more, "without_cpu_percent": 100 * median(none for _, none in pairs)}
    return Result(case, {"views": TABS}, figures, more / CPU, "2 % of a core", at_most(1))


def _share(service: Service, published: list[str], pages: list[tuple[str, str]], seconds: float) -> float:
    """Return the share of a core that the service takes, with these pages open and these topics published to."""
    with _publishing(service, published), _views(service, pages) as heard:
        time.sleep(SETTLE_SECONDS)
        began, used = time.perf_counter(), service.processor_seconds()
        time.sleep(seconds)
        share = (service.processor_seconds() - used) / (time.perf_counter() - began)
        least = int(seconds / EVERY / 2) if published else 1
        if any(heard[topic] < least for topic, _ in pages):
            raise Failed(f"a view got fewer than {least} events")
        return share


@contextlib.contextmanager
def _views(service: Service, pages: list[tuple[str, str]]) -> Iterator[Counter[str]]:
    """Have a view of each page open until the block ends: its topic, the tail, a subscription; gives their events."""
    heard = Counter[str]()
    with contextlib.ExitStack() as stack:
        for topic, subscription in pages:
            name, other = topic.rpartition("/")[2], subscription.rpartition("/")[2]
            project = topic.split("/topics/")[0]
            connection = _connection(service)
            connection.connect()
            stack.callback(connection.sock.shutdown, socket.SHUT_RDWR)
            path = f"/v1/{project}:watch?topics={name}&subscriptions={other}&tail={name}"
            connection.request("GET", path, headers={"x-api-key": service.token})
            answer = connection.getresponse()
            if answer.status != 200:
                raise Failed(f"a view was answered {answer.status}")
            threading.Thread(target=_read, args=(answer, heard, topic), daemon=True).start()
        yield heard


def _read(answer: http.client.HTTPResponse, heard: Counter[str], topic: str) -> None:
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):  # it is closed meanwhile
        while line := answer.readline():
            heard[topic] += line.startswith(b"event:")


@contextlib.contextmanager
def _publishing(service: Service, topics: list[str]) -> Iterator[None]:
    """Publish a message a second to each topic until the block ends."""
    over = threading.Event()

    def publish() -> None:
        with contextlib.closing(_connection(service)) as connection:
            for topic in itertools.cycle(topics):
                if over.wait(EVERY / len(topics)):
                    return
                connection.request("POST", f"/v1/{topic}:publish", body, {"x-api-key": service.token})
                connection.getresponse().read()

    body = publish_body(1, 200, seed=0)
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _connection(service: Service) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=60)
