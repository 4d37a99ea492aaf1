"""The comparison: every message that went in against every message that came out.

A message is known by the id its publisher was answered. The promise of the service is that consumers see it under
this very id, exactly once, with the same bytes; each violation of that is one sentence.

One publisher and one consumer write to a ledger, each its own dictionary, so no lock is needed.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Message(NamedTuple):
    """Attributes and payload, as one application gives them to another."""

    attributes: dict[str, str]
    data: bytes


class Ledger:
    """Messages published to one topic and received from its subscription, by message id."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.bytes = 0
        """Payload bytes published."""
        self.acknowledged = 0
        self.duplicated = 0
        self._sent: dict[str, Message] = {}
        self._received: dict[str, Message] = {}
        self._findings: list[str] = []

    @property
    def published(self) -> int:
        """Return the number of messages that the service confirmed."""
        return len(self._sent)

    @property
    def received(self) -> int:
        """Return the number of different messages received."""
        return len(self._received)

    @property
    def messages(self) -> Mapping[str, Message]:
        """Return the messages that the service confirmed, by id."""
        return self._sent

    def sent(self, ids: Sequence[str], messages: Sequence[Message]) -> None:
        """Note the messages of one publish with their ids."""
        if len(ids) != len(messages):
            self._findings.append(f"{self.topic}: {len(messages)} messages were answered with {len(ids)} ids")
        for message_id, message in zip(ids, messages, strict=False):
            if message_id in self._sent:
                self._findings.append(f"{self.topic} message {message_id}: this id was given twice")
            self._sent[message_id] = message
            self.bytes += len(message.data)

    def came_out(self, message_id: str, message: Message) -> None:
        """Note one message a consumer got."""
        if message_id in self._received:
            self.duplicated += 1
            self._findings.append(f"{self.topic} message {message_id}: delivered more than once")
        self._received[message_id] = message

    def lost(self) -> list[str]:
        """Return the ids that went in and did not come out."""
        return [message_id for message_id in self._sent if message_id not in self._received]

    def findings(self) -> list[str]:
        """Return one sentence for each broken promise; empty when all is well. Call it when the traffic has ended."""
        lost = [f"{self.topic} message {message_id}: lost" for message_id in self.lost()]
        return [*self._findings, *lost, *self._differences()]

    def _differences(self) -> Iterator[str]:
        for message_id, came in self._received.items():
            went = self._sent.get(message_id)
            if went is None:
                yield f"{self.topic} message {message_id}: came out, but was never published"
            elif went.attributes != came.attributes:
                yield f"{self.topic} message {message_id}: altered, its attributes are not those published"
            elif went.data != came.data:
                yield f"{self.topic} message {message_id}: altered, {_first_difference(went.data, came.data)}"


def _first_difference(went: bytes, came: bytes) -> str:
    for place, (before, after) in enumerate(zip(went, came, strict=False)):
        if before != after:
            return f"byte {place} was {before:#04x} and came out as {after:#04x}"
    return f"{len(went)} bytes went in and {len(came)} came out"
