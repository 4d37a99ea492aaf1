"""Messages with decoded fields, and the options of workers (`ams.client.worker`)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, TypeAlias, TypedDict

from ams.client import wire


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish: it needs data, attributes, or both."""

    data: bytes = b""
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str = ""
    """At most 1024 bytes of UTF-8; may be empty. Messages of one key can be delivered in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage(Message):
    """A message of a subscription. It may be published again, with a new id and time."""

    id: str
    """Its offset in the topic, from 0."""
    publish_time: datetime
    """When the service stored it, in UTC."""
    ack_id: str
    """Acknowledges the message; in an ordered subscription also all before it."""
    delivery_attempt: int | None = None
    """Number of this delivery, from 1: failures plus one. None for an ordered subscription."""


Acknowledged: TypeAlias = ReceivedMessage | str | Sequence[ReceivedMessage | str]
"""One or several received messages or ack ids."""


def ack_ids_of(messages: Acknowledged) -> list[str]:
    """Return the ack ids of one message or of several."""
    every = [messages] if isinstance(messages, ReceivedMessage | str) else messages
    return [each if isinstance(each, str) else each.ack_id for each in every]


def outgoing(message: Message) -> wire.Message:
    """Return the message to publish, without id and time."""
    return wire.message(message.data, message.attributes, message.ordering_key)


def incoming(received: wire.ReceivedMessage) -> ReceivedMessage:
    """Decode a pulled message. Raises `ValueError` for an invalid time."""
    message = received.message
    return ReceivedMessage(
        data=data_of(message), attributes=message.attributes, ordering_key=received.ordering_key,
        id=message.message_id, publish_time=datetime.fromisoformat(message.publish_time).astimezone(UTC),
        ack_id=received.ack_id, delivery_attempt=received.delivery_attempt,
    )  # fmt: skip


def data_of(message: wire.PulledMessage) -> bytes:
    """Return the data of a message as bytes."""
    try:
        return message.payload()
    except ValueError:
        # Without strict_data a service keeps data that is not base64 as text (clients.md, A17).
        return message.data.encode()


Handler: TypeAlias = Callable[[ReceivedMessage], object]
"""Handles a message; the result is ignored."""
AsyncHandler: TypeAlias = Callable[[ReceivedMessage], Awaitable[object]]  # the same for asyncio

MAX_DELAY = 600  # seconds; longest delay of a nack


class RetryLater(Exception):
    """Raised by a handler to get the message again after `delay` seconds, 0 to 600.

    Without a delay, the retry policy decides. It counts as a failure, like any other error, but is not logged.

    Raises:
        ValueError: The delay is out of range.
    """

    def __init__(self, delay: float | None = None) -> None:
        if delay is not None and not 0 <= delay <= MAX_DELAY:
            raise ValueError(f"a delay is 0 to {MAX_DELAY} seconds")
        super().__init__("later" if delay is None else f"after {delay} seconds")
        self.delay = delay


class Stop(Protocol):
    """Signal to stop working: an event of `threading` or of `asyncio`."""

    def is_set(self) -> bool:
        """Return whether to stop."""


class WorkOptions(TypedDict, total=False):
    """Options of a worker on a parallel subscription; defaults are those of `Limits`."""

    concurrency: int
    prefetch: int
    max_lease: float
    grace: float
    max_messages: int | None
    until_empty: bool
    stop: Stop | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a worker. Raises `ValueError` for invalid ones."""

    concurrency: int = 8  # messages handled in parallel
    prefetch: int | None = None  # messages prefetched beyond these; None: as many as `concurrency`
    max_lease: float = 3600.0  # seconds for which a lease is extended; after that the message is delivered again
    grace: float = 30.0  # seconds for handlers to end when work stops
    max_messages: int | None = None  # stop after so many messages
    until_empty: bool = False  # stop when the backlog is empty
    stop: Stop | None = None  # stop when it is set; None: at SIGTERM or SIGINT, if run in the main thread

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError("concurrency is at least 1")
        if self.prefetch is not None and self.prefetch < 0:
            raise ValueError("prefetch is not negative")
        if self.max_messages is not None and self.max_messages < 1:
            raise ValueError("max_messages is at least 1")
        if min(self.max_lease, self.grace) < 0:
            raise ValueError("seconds are not negative")

    @property
    def max_leased(self) -> int:
        """Maximum number of leased messages."""
        return self.concurrency + self._ahead

    @property
    def least_room(self) -> int:
        """Minimum free room before the next pull: half of the prefetch, to save requests."""
        return max(1, self._ahead // 2)

    @property
    def _ahead(self) -> int:
        return self.concurrency if self.prefetch is None else self.prefetch


@dataclass(frozen=True, slots=True)
class Worked:
    """Counts of messages by outcome."""

    worked: int = 0
    """Handled and acknowledged."""
    failed: int = 0
    """The handler raised; they come again."""
    late: int = 0
    """The lease expired before the acknowledgement or the handling; they come again, or already have."""
    given_back: int = 0
    """Not handled, or not to the end, when work stopped."""
