"""The protocol of a log. `tests/storage/log/test_contract.py` and `test_keys.py` check every engine.

A log holds the messages of each topic in order. Every engine promises:

1. When `append` returns, its messages survive `kill -9` of every process of ours at once.
2. All messages of an append are stored, or none; their offsets are consecutive, in the order given, and are the
   offsets readers see. Offsets of a topic start at 0 and are never given twice.
3. `read` returns messages in offset order. Within `bounds`, only loading and damage leave holes.
4. Publish times are whole milliseconds and never go backwards within a topic.
5. `append` with a known key and the same content returns the first answer and stores nothing.
6. Cancelling any call leaves the log whole.

Raises:
    TopicGone: the topic is unknown.
    LogUnavailable: the engine cannot work now. Its subclass `OutcomeUnknown`: the append may be stored.
    KeyReused: the idempotency key was used with other content.
    TooLarge: the messages exceed the size of one append; nothing is stored.
    Damaged: stored bytes are damaged; they are never served.

Before its first wait a call may run without a task (`ams.http.fast_lane`): no `asyncio.timeout`, no `TaskGroup`.
"""

import os
from collections.abc import AsyncIterable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from operator import le, lt
from typing import NamedTuple, Protocol

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.core.messages import Message, Stored, batch_of
from ams.core.names import Offset, TopicId
from ams.core.runs import Columns, Run

HASH_BYTES = 16
MAX_KEY = 255  # characters of an idempotency key


class Appended(NamedTuple):
    """Offsets `first` .. `first + count - 1` and publish time of one append."""

    first: Offset
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not needed here
    time: Milliseconds


class Bounds(NamedTuple):
    """Range of offsets in a topic: `oldest` is the first one kept, `end` the next one to assign."""

    oldest: Offset
    end: Offset


class Totals(NamedTuple):
    """Totals of all messages published to a topic, including those that retention removed."""

    messages: int
    bytes: int  # data bytes, as a publish request counts for them (`ams.core.messages.data_bytes`)
    time: Milliseconds | None  # publish time of the last message; None: no message yet


class Owner(NamedTuple):
    """Topics that share a quota of `limit` bytes."""

    topics: Collection[TopicId]
    limit: int


class Origin(NamedTuple):
    """Start state of a topic that is moved here from another log."""

    first: Offset = Offset(0)  # of the first loaded message, or of the next append when no message is loaded
    bytes: int = 0  # data bytes published so far; loading does not count them again


NO_OFFSET = Offset(2**63)  # above all offsets of messages
NEW_TOPIC = Origin()


class Log(Protocol):
    """An ordered log of messages per topic; the module's docstring is the contract."""

    async def create(
        self, topic: TopicId, retention: Milliseconds | None = None, *, label: str = "", origin: Origin = NEW_TOPIC
    ) -> None:
        """Create a topic, durably. Does nothing for a topic that exists. Ids of dropped topics are never reused.

        Args:
            retention: age limit of its messages; None = the log's default.
            label: name for people, where others can look into the log.
        """

    async def load(
        self, topic: TopicId, batches: AsyncIterable[Sequence[Stored]], *, count_from: Offset = NO_OFFSET
    ) -> None:
        """Store messages with their offsets and publish times from another log; durable when it returns.

        Only for a topic without publishers and readers. Missing offsets stay holes. After an error the messages up to
        some batch stay; another call can load the rest.

        Args:
            count_from: count bytes only from this offset on; earlier bytes are already in the topic's origin.

        Raises:
            InvalidInput: offsets begin below the topic's end or do not grow, or times go backwards.
        """

    async def end_load(self) -> None:
        """End a load: index the loaded messages so that the next start need not scan them."""

    async def drop(self, topic: TopicId) -> None:
        """Remove a topic and wake its waiters. Its space is freed later. An unknown topic is no error."""

    def hold_appends(self, topic: TopicId) -> AbstractAsyncContextManager[None]:
        """Block appends to a topic by this process, so that `totals` are final within the block.

        Accepted appends have ended when the block begins. Later ones wait until it ends, and raise `NotFound` if the
        topic was dropped. One block at a time for a topic. An unknown topic is no error.
        """

    async def set_retention(self, topic: TopicId, retention: Milliseconds | None) -> None:
        """Change a topic's retention, durably; None = the log's default.

        A shorter retention applies to all messages at once, a longer one only to later appends.
        """

    async def retention(self, topic: TopicId) -> Milliseconds | None:
        """Return a topic's own retention; None: the log's default applies."""

    async def topics(self) -> frozenset[TopicId]:
        """Return every topic the log holds."""

    async def append(self, topic: TopicId, messages: Sequence[Message], *, key: str | None = None) -> Appended:
        """Store one or more messages at the end of the topic, all or none; return when they are durable.

        `key` (1 to 255 characters, else `InvalidInput`) makes the append idempotent within the topic.
        """

    async def earlier_answer(self, topic: TopicId, messages: Sequence[Message], key: str) -> Appended | None:
        """Return the answer to an earlier `append` with this key; None: the key is new. May raise `KeyReused`."""

    async def read(self, topic: TopicId, start: Offset, *, max_messages: int, max_bytes: int) -> Sequence[Stored]:
        """Return messages from `start`, or from the oldest one kept if that is later; empty at the end.

        `max_bytes` limits the fragments; the first message may exceed it.
        """

    async def bounds(self, topic: TopicId) -> Bounds:
        """Return the oldest kept offset and the end."""

    async def all_bounds(self) -> Mapping[TopicId, Bounds]:
        """Return the bounds of every topic; far cheaper than `bounds` of each."""

    async def totals(self, topic: TopicId) -> Totals:
        """Return the totals of a topic. They never shrink, and are durable."""

    async def stored_bytes(self, topics: Collection[TopicId]) -> Mapping[TopicId, int]:
        """Return roughly how many bytes these topics occupy; deleted topics are left out."""

    async def offset_at(self, topic: TopicId, time: Milliseconds) -> Offset | None:
        """Return the first kept offset with publish time `time` or later, or None."""

    async def wait(self, topic: TopicId, after: Offset, timeout: float) -> bool:
        """Return True as soon as the topic's end is above `after`, False after `timeout` seconds.

        Returns False early when the topic is dropped or the log closes. No polling.
        """

    @property
    def refusal(self) -> str | None:
        """Why all appends are refused now, or None."""

    @property
    def away(self) -> str | None:
        """Why the log cannot be reached now, or None. Always None for a log in this process."""

    async def weak_topics(self) -> Mapping[TopicId, str]:
        """Return topics stored less safely than promised, with the reason. Their appends are refused."""

    async def name_of(self, topic: TopicId) -> str:
        """Return the topic's name in the storage of the log, for operators; raise `TopicGone`."""

    async def close(self) -> None:
        """Finish accepted work, wake all waiters, close files and connections."""


class PendingRead:
    """The result of a read, filled step by step. The first message always fits."""

    def __init__(self, start: Offset, max_messages: int, max_bytes: int) -> None:
        self.offset = start  # of the next message
        self.runs: list[Run] = []
        self.full = max_messages <= 0
        self.messages_left = max_messages  # how many more messages it may take
        self.bytes_left = max_bytes  # how many more bytes of fragments it may take

    def take(self, run: Run) -> None:
        """Add the messages of a run from `offset` on, until one does not fit."""
        skip = max(self.offset - run.first, 0)
        if self.runs and len(run.fragments[skip]) > self.bytes_left:
            self.full = True
            return
        part = run
        if skip or len(run.fragments) > self.messages_left or run.size > self.bytes_left:
            part = run.part(Offset(run.first + skip), self.messages_left, self.bytes_left)
        self.runs.append(part)
        self.messages_left -= len(part.fragments)
        self.bytes_left -= part.size
        self.offset = part.end
        self.full = part.end < run.end or self.messages_left <= 0 or self.bytes_left <= 0


def check_key(key: str) -> None:
    """Raise `InvalidInput` for a key with a wrong length."""
    if not 1 <= len(key) <= MAX_KEY:
        raise InvalidInput(f"An idempotency key has 1 to {MAX_KEY} characters")


def check_load(batch: Columns, end: Offset, time: Milliseconds) -> None:
    """Raise `InvalidInput` for messages that cannot follow those before `end`, whose last publish time is `time`."""
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
    """Return the 16-byte hash of a topic's idempotency key."""
    return blake2b(topic + key, digest_size=HASH_BYTES).digest()


_SECRET_BYTES = 8
_SECRET = os.urandom(_SECRET_BYTES)
_NONCE = bytes(12)  # a fixed nonce is safe: sums are never shown, and nothing is encrypted
_SEPARATOR = b"\xff"  # never occurs in UTF-8, so other fragments cannot join to the same bytes


def content_hash(messages: Sequence[Message], secret: bytes | None = None) -> bytes:
    """Return a 16-byte hash of the messages of an append, in order; the order of attributes does not matter.

    The hash is a secret, by default of this process, and an AES-GMAC made with it. Publishers do not know the secret,
    so they cannot construct other messages with the same hash. GMAC is faster than any hash function. Compare only by
    `is_content`.
    """
    secret, content = secret or _SECRET, _SEPARATOR.join(batch_of(messages).in_order())
    return secret + _mac(secret).encrypt(_NONCE, b"", content)[: HASH_BYTES - _SECRET_BYTES]


def is_content(remembered: bytes, messages: Sequence[Message]) -> bool:
    """Return whether a stored `content_hash` is of these messages."""
    return remembered == content_hash(messages, remembered[:_SECRET_BYTES])


@lru_cache
def _mac(secret: bytes) -> AESGCM:
    return AESGCM(secret + secret)
