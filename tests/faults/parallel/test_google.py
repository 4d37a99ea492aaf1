"""Google's client as a consumer of the campaigns, when it ends by itself."""

import random
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import NotFound, RetryError
from google.cloud import pubsub_v1

from tests.faults.parallel.google import KINDS, Subscriber
from tests.faults.parallel.observed import Observer

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


def test_a_client_that_gave_up_begins_again(begun: Streams, subscriber: Subscriber) -> None:
    begun[0].set_exception(RetryError("Timeout of 60.0s exceeded", None))
    assert (len(begun), list(subscriber.violations())) == (2, [])


def test_any_other_end_is_told(begun: Streams, subscriber: Subscriber) -> None:
    begun[0].set_exception(NotFound("gone"))
    [told] = subscriber.violations()
    assert (len(begun), told) == (1, "the client of subscription google-plain ended: NotFound('gone')")


def test_a_client_that_is_stopped_does_not_begin_again(begun: Streams, subscriber: Subscriber) -> None:
    subscriber.stop()
    assert len(begun) == 1
