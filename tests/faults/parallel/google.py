"""Consumers with Google's client for Python, by streams: their callbacks acknowledge, nack, are slow, or drop messages.

An interceptor between the unmodified client and its channel records requests and answers as attempts of a history.

A message on a stream was leased some time before: after the stream was opened, and shortly before it arrived. Without
exactly-once delivery the service also says OK to expired ack ids. So an answer is meaningful only while the lease
surely runs; any other is recorded as unknown. With ordering keys a lease ends no later than those of earlier messages
of the key that the client holds.
"""

import asyncio
import base64
import itertools
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import grpc
from google.api_core.exceptions import RetryError
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeStatus
from google.cloud.pubsub_v1.subscriber.message import Message
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport
from google.rpc import error_details_pb2, status_pb2

from simulation.histories import parallel_laws as laws
from simulation.histories import parallel_scene as parallel
from simulation.histories.attempts import (
    ACK,
    EXTEND,
    NACK,
    Attempt,
    Facts,
    Held,
    Lease,
    Outcome,
    Settle,
    count_acknowledged,
    run_of,
)
from simulation.histories.client import PROJECT, Client, Kind
from simulation.histories.history import History
from simulation.histories.parallel_laws import Parallel, ParallelEnding, TakeOvers
from simulation.histories.payload import Leased, is_poisoned, leased_message, name_of, ordering_key
from tests.faults.http_client import Traffic

MAX_TRANSIT_SECONDS = 2.0  # seconds between lease and arrival at most, on a busy machine
MAX_HOLD_SECONDS = 60.0  # seconds for which a client holds a message at most, by the requests it sends
_SERVICE = "/google.pubsub.v1.Subscriber/"
_DETAILS = "grpc-status-details-bin"
Now = Callable[[], "Moment"]
_WAIT_OPTIONS = {"wait_for_ready": True}
"""The service is down half of the time here. By default the client opens a stream five times in a row, then pauses for
ten seconds. It also gives up after a minute of failures, which can be bad luck here."""


class Moment(NamedTuple):
    time: float
    deaths: int
    is_up: bool
    since: float  # messages that arrive now were leased no earlier


class _EarliestLease(NamedTuple):
    """The earliest lease time of a message, and the life of the service then."""

    since: float
    deaths: int
    number: int
    """How often this client got the message before."""
    offset: int
    key: str


def as_told(subs: Sequence[Parallel], attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts; answers that another owner makes meaningless become unknown.

    After a node is lost, others take over its subscriptions one by one; only the runs in the ids show when.
    """
    take_overs = {each.name: TakeOvers(each, attempts) for each in subs if not each.exactly_once}
    return [each for attempt in attempts for each in _split_ids(attempt, take_overs)]


def _split_ids(attempt: Attempt, take_overs: Mapping[str, TakeOvers]) -> Iterator[Attempt]:
    """Yield the ids with a meaningful answer, and those without."""
    if not (isinstance(attempt, Settle) and attempt.outcome is Outcome.DONE and attempt.subscription in take_overs):
        yield attempt
        return
    known = take_overs[attempt.subscription]
    unknown = tuple(each for each in attempt.ids if known.may_have_ended(run_of(each), attempt.ended))
    said = tuple(each for each in attempt.ids if each not in unknown)
    for ids, outcome in ((said, Outcome.DONE), (unknown, Outcome.UNKNOWN)):
        if ids:
            yield replace(attempt, ids=ids, outcome=outcome)


class Observer(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):  # type: ignore[misc]
    """Records the requests of one client of one subscription."""

    def __init__(self, name: str, kind: Parallel, history: History, now: Now, traffic: Traffic) -> None:
        """Create it in the campaign's loop; the client calls it, and it calls `now`, in their own threads."""
        self._name, self._kind, self._history = name, kind, history
        self._now, self._traffic = now, traffic
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._came: dict[str, _EarliestLease] = {}
        self._of_key: defaultdict[str, dict[int, str]] = defaultdict(dict)
        """The newest id of each message of an ordering key that is not surely acknowledged."""
        self._nacked: dict[str, float] = {}
        self._answered: set[str] = set()

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        opened, stream = self._now(), f"{self._name}-stream-{next(self._numbers)}"
        call = continuation(details._replace(**_WAIT_OPTIONS), requests)
        return _Responses(call, lambda response: self._note_given(response, opened, stream))

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        verb = details.method.removeprefix(_SERVICE)
        seconds = request.ack_deadline_seconds if verb == "ModifyAckDeadline" else 0
        noted = ACK if verb == "Acknowledge" else EXTEND if seconds else NACK
        if noted == NACK:
            self._nacked.update(dict.fromkeys(request.ack_ids, self._now().time))
        began = self._now()
        call = continuation(details._replace(**_WAIT_OPTIONS), request)
        ended = self._now()
        self._note_settled(noted, tuple(request.ack_ids), seconds, call, began, ended)
        return call

    def note_confirmation(self, ack_id: str, started: float) -> None:
        """Record an acknowledgement that the service, and so the client, reports as successful.

        The client also reports success for calls that failed without details, as on a broken connection: it ignores
        errors that it cannot parse (`_process_requests`). No service can fix that.
        """
        if ack_id not in self._answered:
            return
        facts = self._facts(started, time.monotonic(), Outcome.DONE)
        self._history.add(Settle(**facts, subscription=self._kind.name, verb=ACK, ids=(ack_id,)))

    def _note_given(self, response: Any, opened: Moment, stream: str) -> None:
        now = self._now()
        since = max(opened.time, now.since)
        messages = tuple(_read_message(each) for each in response.received_messages)
        if not messages:
            return
        for each in messages:
            key = ordering_key(each.name) if self._kind.ordered else ""
            self._came[each.ack_id] = _EarliestLease(since, opened.deaths, len(self._came), each.id, key)
            if key:
                self._of_key[key][each.id] = each.ack_id
        facts = self._facts(since, now.time, Outcome.DONE)
        self._history.add(Lease(**facts, subscription=self._kind.name, messages=messages, stream=stream))

    def _note_settled(
        self, verb: str, ids: tuple[str, ...], seconds: float, call: Any, began: Moment, ended: Moment
    ) -> None:
        late = _is_late(call)
        if verb == ACK and call.code() is grpc.StatusCode.OK:
            self._answered.update(ids)
        outcome = self._outcome(call, late, began, ended)
        unsure = call.code() is grpc.StatusCode.ABORTED  # the list of late ids may be truncated
        unknown = tuple(
            each
            for each in ids
            if outcome is Outcome.DONE and (not self._has_outcome(each, began, ended) or (unsure and each not in late))
        )
        until = float("inf") if outcome is Outcome.UNKNOWN and not _may_have_died(began, ended) else ended.time
        said = tuple(each for each in ids if each not in unknown)
        if verb == ACK and outcome is Outcome.DONE:
            for each in said:
                known = self._came.get(each)
                if known is not None:
                    self._of_key[known.key].pop(known.offset, None)
        for some, came in ((said, outcome), (unknown, Outcome.UNKNOWN)):
            if some:
                facts, named = self._facts(began.time, until, came), tuple(each for each in some if each in late)
                name = self._kind.name
                self._history.add(Settle(**facts, subscription=name, verb=verb, ids=some, late=named, seconds=seconds))

    def _has_outcome(self, ack_id: str, began: Moment, ended: Moment) -> bool:
        """Return whether a successful answer to an acknowledgement is meaningful."""
        if self._kind.exactly_once:
            return True
        came = self._came.get(ack_id)
        if came is None or not came.deaths == began.deaths == ended.deaths:
            return False
        return ended.time < came.since + self._kind.deadline and not self._may_be_taken_back(came, ended)

    def _may_be_taken_back(self, came: _EarliestLease, ended: Moment) -> bool:
        """Return whether an earlier message of its key may have failed since it arrived."""
        for offset, ack_id in list(self._of_key[came.key].items()):
            other = self._came[ack_id]
            if offset >= came.offset or other.since + MAX_HOLD_SECONDS < came.since:
                continue
            was_nacked = came.since <= self._nacked.get(ack_id, float("-inf")) <= ended.time
            if other.number > came.number or was_nacked or ended.time >= other.since + self._kind.deadline:
                return True
        return False

    def _outcome(self, call: Any, late: Sequence[str], began: Moment, ended: Moment) -> Outcome:
        if call.code() is grpc.StatusCode.OK or late:
            return Outcome.DONE
        if not _may_have_died(began, ended):
            self._on_loop(self._note_refusal, f"{Kind.GOOGLE.value}: {call.code().name} {call.details()}")
        return Outcome.UNKNOWN

    def _note_refusal(self, refusal: str) -> None:
        self._traffic.refusals[refusal] += 1

    def _on_loop(self, call: Callable[..., object], *arguments: object) -> None:
        self._loop.call_soon_threadsafe(call, *arguments)

    def _facts(self, started: float, ended: float, outcome: Outcome) -> Facts:
        return Facts(request=f"{self._name}-{next(self._numbers)}", started=started, ended=ended, outcome=outcome)


class _Responses:
    """A stream of responses; otherwise a proxy for its call."""

    def __init__(self, call: Any, note: Callable[[Any], None]) -> None:
        self._call, self._note = call, note

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        response = next(self._call)
        self._note(response)
        return response

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


def _may_have_died(began: Moment, ended: Moment) -> bool:
    """Return whether the service was killed meanwhile, or was down."""
    return not began.is_up or not ended.is_up or began.deaths != ended.deaths


def _read_message(received: Any) -> Leased:
    message = received.message
    data = base64.b64encode(message.data).decode()
    return leased_message(message.message_id, message.attributes, data, received.ack_id)


def _is_late(call: Any) -> tuple[str, ...]:
    """Return the ids that an error names as expired."""
    if call.code() not in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.ABORTED):
        return ()
    found: list[str] = []
    for key, value in call.trailing_metadata() or ():
        for detail in status_pb2.Status.FromString(value).details if key == _DETAILS else ():
            info = error_details_pb2.ErrorInfo()
            detail.Unpack(info)
            found += info.metadata
    return tuple(found)


LEASE = 10  # seconds of every lease that the clients ask for: the minimum for a stream
CLIENTS_PER_SUBSCRIPTION = 2  # clients of a subscription
MAX_MESSAGES = 200
RECONNECT_OPTIONS = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500))
"""A channel reconnects before the next kill."""


def kinds_of(topic: str) -> tuple[Parallel, ...]:
    return tuple(each._replace(deadline=LEASE) for each in parallel.kinds_of(topic))


class Subscriber:
    """One Google client on one subscription; poisoned messages always fail."""

    def __init__(self, kind: Parallel, observer: Observer, chance: random.Random) -> None:
        self._kind, self._observer, self._random = kind, observer, chance
        self._subscribe: Callable[[], Any] = lambda: None
        self._stream: Any = None
        self._is_stopping = False
        self._channel: Any = None
        self.has_whims = True

    def start(self, channel: grpc.Channel) -> None:
        """Start to consume on its own channel, which reconnects after every kill."""
        self._channel = channel
        channel = grpc.intercept_channel(channel, self._observer)
        client = pubsub_v1.SubscriberClient(transport=SubscriberGrpcTransport(channel=channel))
        control = pubsub_v1.types.FlowControl(
            max_messages=MAX_MESSAGES, min_duration_per_lease_extension=LEASE, max_duration_per_lease_extension=LEASE
        )
        path = f"{PROJECT.removeprefix('/v1/')}/subscriptions/{self._kind.name}"
        self._subscribe = partial(
            client.subscribe, path, self._handle, flow_control=control, await_callbacks_on_shutdown=True
        )
        self._begin()

    def violations(self) -> Iterator[str]:
        """Yield the reason why it ended by itself, which is forbidden."""
        if self._stream is not None and self._stream.done():
            yield f"the client of subscription {self._kind.name} ended: {self._stream.exception(0)!r}"

    def stop(self) -> None:
        """Stop it; it gives back messages that it has not begun with. `violations` tells why it ended before."""
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
        """Subscribe again when the library has given up, as programs do.

        It gives up after a minute of failures, also if the service was killed at each try.
        """
        if not self._is_stopping and isinstance(ended.exception(0), RetryError):
            self._begin()

    def _handle(self, message: Message) -> None:
        if is_poisoned(name_of(message.attributes, base64.b64encode(message.data).decode())):
            message.nack()
            return
        mood = self._random.random() if self.has_whims else 1.0
        if mood < 0.005:
            message.drop()  # dropped: it comes again when its lease has ended
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
                self._observer.note_confirmation(message.ack_id, started)

        message.ack_with_response().add_done_callback(note)


class Streams:
    """A plain, an exactly-once and a keyed subscription of one topic, with two clients each."""

    def __init__(self, topic: str, history: History, now: Now, traffic: Traffic, chance: random.Random) -> None:
        self.kinds: Sequence[Parallel] = kinds_of(topic)
        self._history, self._now, self._traffic, self._chance = history, now, traffic, chance
        self._clients: list[Subscriber] = []
        self._ended: list[str] = []

    async def start(self, admin: Client, channel: Callable[[], grpc.Channel]) -> None:
        """Create the subscriptions and start their clients, each on its own channel."""
        await parallel.prepare(admin, self.kinds)
        told = self._history, self._now, self._traffic
        self._clients = [
            Subscriber(kind, Observer(f"{kind.name}-g{number}", kind, *told), random.Random(self._chance.random()))
            for kind in self.kinds
            for number in range(CLIENTS_PER_SUBSCRIPTION)
        ]
        for each in self._clients:
            each.start(channel())

    async def work_to_the_end(self, admin: Client) -> None:
        """Return when the backlog is empty, or after a timeout."""
        for each in self._clients:
            each.has_whims = False
        await parallel.wait_for_end(admin, self.kinds)
        self._ended = [sentence for each in self._clients for sentence in each.violations()]

    async def stop(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(each.stop) for each in self._clients))

    def violations(self, held: Sequence[Held], attempts: Sequence[Attempt], left: ParallelEnding) -> Iterator[str]:
        """Yield the broken laws; `held` is the topic."""
        told = as_told(self.kinds, attempts)
        for each in laws.with_more_attempts(self.kinds):
            yield from laws.violations(each, held, told, left)
        yield from self._ended

    @property
    def acknowledged_count(self) -> int:
        """Return how many messages were surely acknowledged."""
        return count_acknowledged(as_told(self.kinds, self._history.attempts), *(each.name for each in self.kinds))

    @property
    def taken_over(self) -> int:
        """Return how often another node took over one of the subscriptions."""
        return sum(len(TakeOvers(each, self._history.attempts)) for each in self.kinds)
