"""Messages as programs see them: bytes, texts and times; and how a program works on them (`ams.client.worker`)."""

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
    """At most 1024 bytes of UTF-8; empty: none. Messages of one key can be handed on in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage(Message):
    """A message of a subscription. It may be published again, and then gets another id and time."""

    id: str
    """Its place in its topic, from 0."""
    publish_time: datetime
    """When the service stored it, in UTC."""
    ack_id: str
    """Acknowledges it; of an ordered subscription, all before it too."""
    delivery_attempt: int | None = None
    """The number of this delivery, from 1: how often it has failed, and one more. None: the subscription is ordered."""


Acknowledged: TypeAlias = ReceivedMessage | str | Sequence[ReceivedMessage | str]
"""A message that was received, or its ack id; or several of them."""


def ack_ids_of(messages: Acknowledged) -> list[str]:
    """Return the ack ids of one message or of several."""
    every = [messages] if isinstance(messages, ReceivedMessage | str) else messages
    return [each if isinstance(each, str) else each.ack_id for each in every]


def outgoing(message: Message) -> wire.Message:
    """Return a message as it is published; an id and a time are the service's to give."""
    return wire.message(message.data, message.attributes, message.ordering_key)


def incoming(received: wire.ReceivedMessage) -> ReceivedMessage:
    """Read a message as it came from a pull; raise `ValueError` for a time that is none."""
    message = received.message
    return ReceivedMessage(
        data=data_of(message),
        attributes=message.attributes,
        ordering_key=received.ordering_key,
        id=message.message_id,
        publish_time=datetime.fromisoformat(message.publish_time).astimezone(UTC),
        ack_id=received.ack_id,
        delivery_attempt=received.delivery_attempt,
    )


def data_of(message: wire.PulledMessage) -> bytes:
    """Return the data of a message as bytes."""
    try:
        return message.payload()
    except ValueError:
        # A service without strict_data keeps data that is not base64 as the text that came (clients.md, A17).
        return message.data.encode()


Handler: TypeAlias = Callable[[ReceivedMessage], object]
"""Does what is to be done with a message; what it returns is not looked at."""
AsyncHandler: TypeAlias = Callable[[ReceivedMessage], Awaitable[object]]  # the same for asyncio

MAX_DELAY = 600  # seconds after which a message that was given back may come again


class RetryLater(Exception):
    """Raised by a handler that cannot do with a message now: it is to come again after so many seconds, 0 to 600.

    Without a delay, after that of the retry policy. It counts as a failure of the message, as any other error does,
    but is not logged. Raises `ValueError` for a delay that cannot be.
    """

    def __init__(self, delay: float | None = None) -> None:
        if delay is not None and not 0 <= delay <= MAX_DELAY:
            raise ValueError(f"a delay is 0 to {MAX_DELAY} seconds")
        super().__init__("later" if delay is None else f"after {delay} seconds")
        self.delay = delay


class Stop(Protocol):
    """What says that work is to stop: an event of `threading` or of `asyncio`."""

    def is_set(self) -> bool:
        """Return whether the work is to stop."""


class WorkOptions(TypedDict, total=False):
    """How to work on a parallel subscription; what is absent is as `Limits` says."""

    concurrency: int
    prefetch: int
    max_lease: float
    grace: float
    max_messages: int | None
    until_empty: bool
    stop: Stop | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How work is done; raises `ValueError` for what cannot be."""

    concurrency: int = 8
    """Messages that are handled at a time."""
    prefetch: int | None = None
    """Messages that are fetched beyond these, so that none has to be waited for; None: as many as are handled."""
    max_lease: float = 3600.0
    """Seconds for which a message is kept; one whose handler takes longer is given to somebody else."""
    grace: float = 30.0
    """Seconds that handlers have to end when work is to stop."""
    max_messages: int | None = None
    """After so many messages work ends."""
    until_empty: bool = False
    """True if work ends when there is nothing more."""
    stop: Stop | None = None
    """Work ends when it is set; None: at SIGTERM or SIGINT, if it is done in the main thread."""

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
    def held(self) -> int:
        """The most messages that may be on lease."""
        return self.concurrency + self._ahead

    @property
    def least_room(self) -> int:
        """How many may be taken when more are pulled: half of those ahead are waited for, for fewer requests."""
        return max(1, self._ahead // 2)

    @property
    def _ahead(self) -> int:
        return self.concurrency if self.prefetch is None else self.prefetch


@dataclass(frozen=True, slots=True)
class Worked:
    """What was done with the messages of a subscription."""

    worked: int = 0
    """Handled and acknowledged."""
    failed: int = 0
    """Their handlers raised, so that they come again."""
    late: int = 0
    """Their lease had ended before they were acknowledged, or handled: they come again, perhaps have come already."""
    given_back: int = 0
    """Not handled, or not to the end, when the work was to stop."""
