"""Sending a request to the service, and saying what it means when it is not stored."""

import contextlib
from dataclasses import replace

from ams.client import wire
from ams.client.errors import AlreadyExists, ClientError, Conflict, InvalidInput, NotAllowed, NotFound, TooLarge
from ams.pipeline.service import Service
from ams.pipeline.sink.chunks import Chunk
from ams.pipeline.sink.keys import Keys
from ams.pipeline.sink.options import Writing


class Publisher:
    """Publishes the requests of one task; may be used from several threads.

    A request is sent again, under its key, until it is answered or the patience of the connection is at its end.
    """

    def __init__(self, service: Service, writing: Writing, keys: Keys) -> None:
        self._service = service
        self._writing = writing
        self._keys = keys

    def send(self, chunk: Chunk) -> None:
        """Store the messages of a request; raise a `ClientError` that names topic and rows when they are not stored."""
        try:
            self._publish_or_create(chunk)
        except ClientError as error:
            # Of the same class, so that whoever gets it knows as much as from the service.
            text = f"topic {self._writing.project}/{chunk.lane.topic}: {_reason(chunk, error)}"
            raise type(error)(text) from None

    def _publish_or_create(self, chunk: Chunk) -> None:
        try:
            self._publish(chunk)
        except NotFound as error:
            if not self._writing.create_topics:
                raise NotFound(f"{error.message} (createTopics=true makes it)") from None
            self._create(chunk.lane.topic)
            self._publish(chunk)

    def _publish(self, chunk: Chunk) -> None:
        call = wire.publish_encoded(self._writing.project, chunk.lane.topic, chunk.body(), key=self._keys.key(chunk))
        self._service.call(call)

    def _create(self, topic: str) -> None:
        """Make a topic, unless it is there: made by another task meanwhile, or by a call whose answer was lost."""
        with contextlib.suppress(AlreadyExists):
            self._service.call(replace(wire.create_topic(self._writing.project, topic), repeatable=True))


def _reason(chunk: Chunk, error: ClientError) -> str:
    if isinstance(error, TooLarge):
        return _too_large(chunk)
    if isinstance(error, Conflict):
        return (
            f"a request of {_extent(chunk)} was published with other content before, in an earlier try of this batch; "
            "rows must come the same, in the same order and with the same maxRequest options, each time"
        )
    if isinstance(error, NotAllowed):
        return f"the token does not allow to publish there: {error.message}"
    if isinstance(error, InvalidInput):
        return f"the service refuses a request of {_extent(chunk)}: {error.message}"
    return error.message


def _too_large(chunk: Chunk) -> str:
    largest = chunk.largest()
    if len(chunk.messages) == 1:
        return f"{largest.where} is too large for the service: {len(largest.body)} bytes as it travels"
    return (
        f"a request of {_extent(chunk)} and {chunk.size} bytes is too large for the service, or a message of it; the "
        f"largest is {largest.where} with {len(largest.body)} bytes (maxRequestBytes says how large requests may be)"
    )


def _extent(chunk: Chunk) -> str:
    first, last = chunk.messages[0], chunk.messages[-1]
    return f"{len(chunk.messages)} messages, from {first.where} to {last.where},"
