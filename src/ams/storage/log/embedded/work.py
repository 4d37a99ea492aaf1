"""What is asked of the committer, and what it says was done."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ams.core.clock import Milliseconds
from ams.core.messages import Fragment
from ams.core.names import Offset
from ams.storage.log.base import Appended
from ams.storage.log.embedded.record import Kind
from ams.storage.log.embedded.topic import TopicState
from ams.storage.log.embedded.writer import Open


class Given(NamedTuple):
    """Where messages are that have their offsets and publish time from another log."""

    first: Offset
    time: Milliseconds


@dataclass(slots=True, eq=False)
class Append:
    """An append on its way through the committer."""

    topic: TopicState
    fragments: Sequence[Fragment]
    size: int
    """Bytes of the fragments."""
    data_bytes: int
    done: asyncio.Future[Appended]
    key: bytes = b""
    """Empty: none."""
    hashed: bytes = b""
    """`key_hash` of the key."""
    content: bytes = b""
    """`content_hash` of the messages when there is a key."""
    given: Given | None = None
    """None: the end of the topic, and now."""


@dataclass(slots=True, eq=False)
class Control:
    """A create, drop or change of what is kept of a topic on its way through the committer."""

    kind: Kind
    topic: TopicState
    done: asyncio.Future[None]
    retention: Milliseconds | None = None
    oldest: Offset = Offset(0)


@dataclass(slots=True, eq=False)
class Chore:
    """A look at what is due beside appends: old segments to seal, the reserve, free space."""

    done: asyncio.Future[None]
    seal_all: bool = False
    """Seal every open segment however young, so that its space can be freed."""


Work = Append | Control | Chore | None
"""What is sent to the committer; None asks it to finish."""


class Placed(NamedTuple):
    """A record and where it is."""

    topic: TopicState
    first: Offset
    time: Milliseconds
    messages: int
    position: int
    length: int


class Closed(NamedTuple):
    """A segment that will not grow any more."""

    sequence: int
    length: int


@dataclass(slots=True)
class Outcome:
    """What one step of the committer did to one class; applied on the event loop, in this order."""

    code: int
    commit: int = 0
    begun: Open | None = None
    sequence: int = 0
    """The segment the records are in."""
    length: int = 0
    """Bytes of that segment after them."""
    records: list[Placed] = field(default_factory=list)
    answers: list[tuple[Append, Appended]] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    time: Milliseconds = Milliseconds(0)
    """When the controls were written."""
    failed: list[Append | Control] = field(default_factory=list)
    in_doubt: bool = False
    """Whether bytes of what failed may be in the file, and a restart may find them."""
    closed: list[Closed] = field(default_factory=list)
