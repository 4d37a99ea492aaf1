"""Google's client as a consumer of the campaigns, when it ends by itself."""

import random
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import NotFound, RetryError
from google.cloud import pubsub_v1

from tests.faults.attempts import Attempt, Outcome
from tests.faults.parallel.attempts import ACK, Lease, Leased, Settle
from tests.faults.parallel.google import KINDS, Subscriber
from tests.faults.parallel.laws import Parallel
from tests.faults.parallel.observed import Observer, as_told

Streams = list["Future[None]"]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Streams:
    """How each subscription of the library will end, in the order they began."""
    begun: Streams = []

    def subscribe(*_: Any, **__: Any) -> "Future[None]":
        begun.append(Future())
        return begun[-1]

    monkeypatch.setattr(pubsub_v1.SubscriberClient, "subscribe", subscribe)
    return begun


@pytest.fixture
def subscriber(begun: Streams) -> Iterator[Subscriber]:
    observer = Observer.__new__(Observer)  # no call is made
    subscriber = Subscriber(KINDS[0], observer, random.Random(0))
    subscriber.start(grpc.insecure_channel("127.0.0.1:1"))
    yield subscriber
    subscriber.stop()


def test_a_client_that_gave_up_begins_again_until_it_is_stopped(begun: Streams, subscriber: Subscriber) -> None:
    begun[0].set_exception(RetryError("Timeout of 60.0s exceeded", None))
    assert (len(begun), list(subscriber.violations())) == (2, [])
    subscriber.stop()
    assert len(begun) == 2


def test_any_other_end_is_told(begun: Streams, subscriber: Subscriber) -> None:
    begun[0].set_exception(NotFound("gone"))
    assert len(begun) == 1
    assert list(subscriber.violations()) == ["the client of subscription google-plain ended: NotFound('gone')"]


PLAIN = Parallel("plain", "topic", 10.0, 5)
ONCE = PLAIN._replace(exactly_once=True)


def id_of(offset: int, run: int) -> str:
    return f"{offset}-1.0.{run}.1.abcdef"


def lease(at: float, run: int, *offsets: int) -> Lease:
    messages = tuple(Leased(each, f"m{each}", id_of(each, run)) for each in offsets)
    return Lease(request="pull", started=at, ended=at, outcome=Outcome.DONE, subscription="plain", messages=messages)


def ack(at: float, *ids: str) -> Settle:
    return Settle(
        request="ack", started=at, ended=at, outcome=Outcome.DONE, subscription="plain", verb=ACK, ids=ids
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sub", "attempts", "said", "unknown"),
    [
        (PLAIN, (lease(1, 1, 0), ack(2, id_of(0, 1))), [id_of(0, 1)], []),
        (PLAIN, (lease(1, 1, 0), lease(3, 1, 2), ack(2, id_of(0, 1)), lease(5, 2, 1)), [id_of(0, 1)], []),
        (PLAIN, (lease(1, 1, 0), lease(5, 2, 1), ack(6, id_of(0, 1), id_of(1, 2))), [id_of(1, 2)], [id_of(0, 1)]),
        (ONCE, (lease(1, 1, 0), lease(5, 2, 1), ack(6, id_of(0, 1))), [id_of(0, 1)], []),
    ],
    ids=["nobody took over", "it gave messages later", "another may have taken over", "exactly-once delivery"],
)
def test_an_ok_says_that_it_is_done_unless_another_process_may_have_taken_over(
    sub: Parallel, attempts: tuple[Attempt, ...], said: list[str], unknown: list[str]
) -> None:
    settled = [each for each in as_told([sub], attempts) if isinstance(each, Settle)]

    assert [id_ for each in settled if each.outcome is Outcome.DONE for id_ in each.ids] == said
    assert [id_ for each in settled if each.outcome is Outcome.UNKNOWN for id_ in each.ids] == unknown
