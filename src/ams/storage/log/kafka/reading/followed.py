"""The topics that are waited on, by the broker that is asked about them."""

import asyncio
from dataclasses import dataclass, field

from ams.core.errors import AmsError
from ams.core.names import Offset, TopicId
from ams.storage.log.kafka.brokers.links import Lane, NodeId
from ams.storage.log.kafka.place import Place
from ams.storage.log.kafka.reading.session import FetchSession

LONG, SHORT = Lane("follow"), Lane("follow-new")
"""The question about all topics of a broker, and the one about those that came while it is out."""
NEVER = Offset(2**63)
"""Above every offset."""


@dataclass(eq=False)
class Followed:
    """A topic that is waited on."""

    place: Place
    position: Offset
    """Where the next question begins; from the least that is waited for up to here there is nothing."""
    waiters: dict["asyncio.Future[bool]", Offset] = field(default_factory=dict)
    """Who waits, and for a message at which offset or later."""
    node: "Node | None" = None
    """Who asks about it; None while its leader is looked for."""
    finding: bool = False
    """Whether somebody looks for its leader."""

    def wake(self, end: Offset) -> None:
        """Tell those who wait for less than `end`."""
        for waiter, after in self.waiters.items():
            if after < end and not waiter.done():
                waiter.set_result(True)

    def give_up(self, error: AmsError | None = None) -> None:
        """Tell all who wait that there is nothing to wait for."""
        for waiter in self.waiters:
            if waiter.done():
                continue
            if error:
                waiter.set_exception(error)
            else:
                waiter.set_result(False)


class Node:
    """The topics one broker leads, and up to two questions about them at a time."""

    def __init__(self, number: NodeId) -> None:
        self.number = number
        self.topics: dict[TopicId, Followed] = {}
        self.sessions = {LONG: FetchSession(), SHORT: FetchSession()}
        self.asking: dict[Lane, asyncio.Task[None]] = {}
        self._covered: dict[TopicId, Offset] = {}
        self._new: dict[TopicId, Followed] = {}

    def add(self, followed: Followed) -> None:
        """Ask about a topic, from its position on."""
        topic = followed.place.topic
        self.topics[topic] = followed
        if self._covered.get(topic, NEVER) > followed.position:
            self._new[topic] = followed

    def remove(self, followed: Followed) -> None:
        """Ask no more about a topic."""
        topic = followed.place.topic
        if self.topics.get(topic) is followed:
            del self.topics[topic]
            self._new.pop(topic, None)

    def to_ask(self, lane: Lane) -> list[Followed]:
        """Return what the next question of a lane is about: all, or what the long one that is out does not cover."""
        if lane == SHORT:
            return list(self._new.values())
        self._covered = {topic: each.position for topic, each in self.topics.items()}
        self._new.clear()
        return list(self.topics.values())
