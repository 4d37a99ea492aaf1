"""The promise of a log, kept by every engine and checked by `tests/storage/log/test_contract.py` and `test_keys.py`.

A log holds the messages of each topic in order. Every engine promises:

1. When `append` returns, its messages survive `kill -9` of every process of ours at once.
2. All messages of an append are stored, or none; their offsets are consecutive, in the order given, and are the
   offsets readers see. Offsets of a topic start at 0 and are never given twice.
3. `read` gives messages in offset order, without holes within `bounds` but for those that were loaded or damaged.
4. Publish times are whole milliseconds and never go backwards within a topic.
5. `append` with a key already seen for the topic, and the same content, returns the first answer and stores nothing.
6. Cancelling any call leaves the log whole.

Errors: an unknown topic is `TopicGone`; an engine that cannot work now is `LogUnavailable`, and of it
`OutcomeUnknown` when it cannot say that nothing was done; a key with other content is `KeyReused`; more than one append
may hold is `TooLarge`, before anything is stored; damaged bytes are `Damaged` and are never served.

What runs up to the first wait of a call may be driven without a task (`ams.http.lane`): no `asyncio.timeout`,
`TaskGroup` or `current_task` there.
"""

import os
from collections.abc import AsyncIterable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from itertools import chain
from operator import le, lt
from typing import NamedTuple, Protocol

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.core.messages import Batch, Message, Stored, batch_of
from ams.core.names import Offset, TopicId
from ams.core.runs import Columns

HASH_BYTES = 16
MAX_KEY = 255  # characters of an idempotency key


class Appended(NamedTuple):
    """Where the messages of one append went: `first` .. `first + count - 1`, all with publish time `time`."""

    first: Offset
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not needed here
    time: Milliseconds


class Bounds(NamedTuple):
    """What a topic holds: `oldest` is the first offset kept, `end` the next one to be given."""

    oldest: Offset
    end: Offset


class Totals(NamedTuple):
    """All that was published to a topic, including what retention removed."""

    messages: int
    bytes: int  # data bytes, as a publish request counts for them (`ams.core.messages.data_bytes`)
    time: Milliseconds | None  # publish time of the last message; None: there was none


class Owner(NamedTuple):
    """Topics that belong together, and how many bytes they are to have at most."""

    topics: Collection[TopicId]
    limit: int


class Origin(NamedTuple):
    """What a topic that was kept elsewhere before begins with here."""

    first: Offset = Offset(0)  # of the first message that is loaded; of the next one to be given when none is
    bytes: int = 0  # data bytes published to it in all; loading counts none of these


NEVER = Offset(2**63)  # no message has this offset
NEW = Origin()  # of a topic that was nowhere before


class Log(Protocol):
    """An ordered log of messages per topic; the module's docstring is its promise."""

    async def create(
        self, topic: TopicId, retention: Milliseconds | None = None, *, label: str = "", origin: Origin = NEW
    ) -> None:
        """Create a topic, durably; `retention` is its messages' age limit, absent = the log's default.

        `label` is what people call the topic, for a log that others look into. Creating a topic that exists changes
        nothing. An identity is used once: a dropped one is never created again.
        """

    async def load(
        self, topic: TopicId, batches: AsyncIterable[Sequence[Stored]], *, count_from: Offset = NEVER
    ) -> None:
        """Store messages with the offsets and publish times they had in another log; durable when it returns.

        The bytes of those from `count_from` on are counted; those of the others are in the topic's origin.

        Only for a topic that is neither published to nor read. Offsets grow from the topic's end on; those left out are
        holes, and stay so. Times never go backwards; else `InvalidInput`. When it ends early, the messages up to some
        batch stay: the rest can be loaded by another call.
        """

    async def loaded(self) -> None:
        """Note that much was loaded: the next start need not read it record by record."""

    async def drop(self, topic: TopicId) -> None:
        """Remove a topic; its space is freed later; its waiters wake. Dropping an unknown topic is no error."""

    def held(self, topic: TopicId) -> AbstractAsyncContextManager[None]:
        """Let nothing be appended to a topic by this process until the block ends.

        What was accepted before is decided when the block begins: `totals` are final in it. Appends that come meanwhile
        wait, and go on after it, or raise `NotFound` when the topic was dropped in it. One block at a time for a topic;
        an unknown topic is no error.
        """

    async def set_retention(self, topic: TopicId, retention: Milliseconds | None) -> None:
        """Change how long a topic's messages are kept, durably; None = the log's default.

        A shorter age holds for all messages at once, a longer one for those appended from now on.
        """

    async def retention(self, topic: TopicId) -> Milliseconds | None:
        """Return the age limit a topic was given, None when it goes by the log's default."""

    async def topics(self) -> frozenset[TopicId]:
        """Return every topic the log holds."""

    async def append(self, topic: TopicId, messages: Sequence[Message], *, key: str | None = None) -> Appended:
        """Store at least one message at the end of the topic, all or none; return when they are durable.

        `key` (1 to 255 characters, else `InvalidInput`) makes the append idempotent within the topic.
        """

    async def answered(self, topic: TopicId, messages: Sequence[Message], key: str) -> Appended | None:
        """Return the answer to an earlier `append` with this key, None: new; raise `KeyReused` for other content."""

    async def read(self, topic: TopicId, start: Offset, *, max_messages: int, max_bytes: int) -> Sequence[Stored]:
        """Return messages from `start` on; a start below the oldest kept reads from the oldest.

        At most `max_messages`, and at most `max_bytes` of fragments but always at least one message; empty at the end.
        """

    async def bounds(self, topic: TopicId) -> Bounds:
        """Return the oldest kept offset and the end."""

    async def all_bounds(self) -> Mapping[TopicId, Bounds]:
        """Return the bounds of every topic: for many this costs far less than `bounds` of each."""

    async def totals(self, topic: TopicId) -> Totals:
        """Return the totals of all that was published to the topic. They never shrink, and are durable."""

    async def stored(self, topics: Collection[TopicId]) -> Mapping[TopicId, int]:
        """Return how many bytes the kept messages of these topics take, about; topics that are gone are left out."""

    async def offset_at(self, topic: TopicId, time: Milliseconds) -> Offset | None:
        """Return the first kept offset whose publish time is `time` or later; None when there is none."""

    async def wait(self, topic: TopicId, after: Offset, timeout: float) -> bool:
        """Return True as soon as the topic's end is above `after`, False after `timeout` seconds.

        Ends early (False) when the topic is dropped or the log closes. Costs nothing while idle.
        """

    @property
    def refusal(self) -> str | None:
        """Why appends are refused now, to all topics; None while they are not."""

    @property
    def away(self) -> str | None:
        """Why nothing can be asked of the log now; None while it can, as always when it is in this process."""

    async def weak(self) -> Mapping[TopicId, str]:
        """Return the topics whose messages are kept less safely than promised, so that they are refused, and why."""

    async def name_of(self, topic: TopicId) -> str:
        """Return what a topic is called where the log keeps it, for operators; raise `TopicGone`."""

    async def close(self) -> None:
        """Finish what was accepted, wake all waiters, and let go of files and connections."""


def check_key(key: str) -> None:
    """Raise `InvalidInput` for a key that is none."""
    if not 1 <= len(key) <= MAX_KEY:
        raise InvalidInput(f"An idempotency key has 1 to {MAX_KEY} characters")


def check_load(batch: Columns, end: Offset, time: Milliseconds) -> None:
    """Raise `InvalidInput` for messages that cannot be loaded behind those up to `end`, the last of them of `time`."""
    offsets, times = batch.offsets, batch.times
    if all(map(lt, chain((end - 1,), offsets), offsets)) and all(map(le, chain((time,), times), times)):
        return
    for each in batch:
        if each.offset < end:
            raise InvalidInput(f"offset {each.offset} was given before: the next one is {end}")
        if each.time < time:
            raise InvalidInput(f"the publish time of offset {each.offset} is before that of the message before it")
        end, time = Offset(each.offset + 1), each.time


def key_hash(topic: TopicId, key: bytes) -> bytes:
    """Return 16 bytes that stand for a key of a topic."""
    return blake2b(topic + key, digest_size=HASH_BYTES).digest()


def content_hash(messages: Sequence[Message]) -> bytes:
    """Return 16 bytes that stand for the messages of an append, in order; the order of attributes means nothing.

    They are a secret that nobody who publishes can know, another one in each process, and a sum made with it: AES-GMAC.
    So whatever was published, it is as good as impossible to find other messages with that sum; and it is made faster
    than any hash. What is remembered is compared by `is_content` alone.
    """
    return _SECRET + _sum(_MAC, batch_of(messages))


def is_content(remembered: bytes, messages: Sequence[Message]) -> bool:
    """Return whether these messages are those of a remembered hash."""
    secret = remembered[:_SECRET_BYTES]
    return remembered == secret + _sum(_mac(secret), batch_of(messages))


def _mac(secret: bytes) -> AESGCM:
    return AESGCM(secret + secret)


_SECRET_BYTES = 8
_SUM_BYTES = HASH_BYTES - _SECRET_BYTES
_SECRET = os.urandom(_SECRET_BYTES)
_MAC = _mac(_SECRET)
_NONCE = bytes(12)  # the same each time: sums are never shown, and nothing is encrypted
_BETWEEN = b"\xff"  # it never occurs in UTF-8, so fragments of other lengths cannot make the same bytes


def _sum(mac: AESGCM, messages: Batch) -> bytes:
    return mac.encrypt(_NONCE, b"", _BETWEEN.join(messages.in_order()))[:_SUM_BYTES]
