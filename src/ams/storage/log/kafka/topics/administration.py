"""What is done to topics on the brokers, one question each: list, make, delete, describe, change, cut.

Every broker passes on what is the controller's. Times are of the event loop: `until` is when to give up, with
`LogUnavailable`.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import structlog
from aiokafka.errors import (
    KafkaError,
    NoError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
)
from aiokafka.protocol.metadata import MetadataRequest

from ams.core.errors import LogUnavailable
from ams.core.names import Offset, TopicId
from ams.storage.log.kafka.brokers.connection import Connection
from ams.storage.log.kafka.brokers.links import META, NodeId
from ams.storage.log.kafka.brokers.requests import AlterRequest, ListTopics
from ams.storage.log.kafka.place import Place
from ams.storage.log.kafka.topics.listing import Listed, listed

logger = structlog.get_logger("ams.log")

Answer = TypeVar("Answer")
Configs = Mapping[str, str]
"""Settings of a topic on the brokers, by their names there."""

_TOPIC = 2
"""What a resource is, in the requests about settings."""
_PAUSE = 0.02
_TIMEOUT_MS = 3000
"""How long a broker may wait for the controller."""


async def list_topics(connection: Connection, prefix: str, until: float) -> dict[TopicId, Listed]:
    """Return the topics of ours that a broker knows."""
    return await connection.ask_any(ListTopics(), lambda answer: listed(prefix, answer.data), until=until)


class NewTopic(NamedTuple):
    """A topic to be made."""

    name: str
    replication: int
    configs: Configs


async def create_topics(connection: Connection, topics: Sequence[NewTopic], until: float) -> list[KafkaError | None]:
    """Make topics of one partition; return what was refused of each. One that is there already is no error."""
    asked: Any = [(each.name, 1, each.replication, [], list(each.configs.items())) for each in topics]

    def answer(response: Any) -> list[KafkaError | None]:
        said = {
            name: _error(code, message, but=TopicAlreadyExistsError) for name, code, message in response.topic_errors
        }
        return _again_if_it_passes([said.get(each.name, KafkaError("no answer")) for each in topics])

    return await connection.ask_any(CreateTopicsRequest(asked, _TIMEOUT_MS, False), answer, until=until)


async def led_according_to(connection: Connection, node: NodeId, names: Iterable[str]) -> None:
    """Wait until a broker names a leader of each topic; not for one that does not answer."""
    missing = set(names)
    while missing:
        try:
            question = MetadataRequest(list(missing), allow_auto_topic_creation=False)
            response = await connection.send(node, question, META)
        except KafkaError:
            return
        missing -= {name for _, name, _, parts in response.topics if any(leader >= 0 for _, _, leader, *_ in parts)}
        if missing:
            await asyncio.sleep(_PAUSE)


async def delete_topics(connection: Connection, names: Sequence[str], until: float) -> list[KafkaError | None]:
    """Delete topics; return what was refused of each. One that is not there is no error."""

    def answer(response: Any) -> list[KafkaError | None]:
        said = {name: _error(code, but=UnknownTopicOrPartitionError) for name, code in response.topic_error_codes}
        return _again_if_it_passes([said.get(name, KafkaError("no answer")) for name in names])

    return await connection.ask_any(DeleteTopicsRequest(list(names), _TIMEOUT_MS), answer, until=until)


async def describe(
    connection: Connection, names: Iterable[str], wanted: Iterable[str], until: float
) -> dict[str, Configs]:
    """Return settings of topics by name; a topic that is not there is left out."""
    resources: Any = [(_TOPIC, name, list(wanted)) for name in names]

    def answer(response: Any) -> dict[str, Configs]:
        found: dict[str, Configs] = {}
        for code, message, _, name, entries in response.resources:
            if for_code(code) is not UnknownTopicOrPartitionError:
                _check(code, message)
                found[name] = {entry[0]: entry[1] for entry in entries}
        return found

    return await connection.ask_any(DescribeConfigsRequest(resources), answer, until=until)


async def alter(connection: Connection, place: Place, changes: Mapping[str, str | None], until: float) -> None:
    """Change settings of a topic; raises `TopicGone` when it is not there."""

    def answer(response: Any) -> None:
        for code, message, *_ in response.resources:
            _check(code, message)

    await connection.ask_any(AlterRequest(place.name, changes), answer, until=until)


async def delete_records(connection: Connection, place: Place, before: Offset, until: float) -> None:
    """Delete the messages below an offset, given as ours, at once."""
    cut = [(place.name, [(0, before - place.first)])]

    def answer(response: Any) -> None:
        for _, partitions, *_ in response.topics:
            for _, _, code, *_ in partitions:
                _check(code)

    await connection.ask(place, DeleteRecordsRequest(cut, _TIMEOUT_MS, {}), answer, until=until)


def _check(code: int, message: str | None = None) -> None:
    if error := _error(code, message):
        raise error


def _error(code: int, message: str | None = None, but: type[KafkaError] = NoError) -> KafkaError | None:
    kind: type[KafkaError] = for_code(code)
    return None if kind is NoError or kind is but else kind(message or "")


def _again_if_it_passes(errors: list[KafkaError | None]) -> list[KafkaError | None]:
    """Raise an error that passes, so that all is asked again: what was done before is no error then."""
    for error in errors:
        if error is not None and error.retriable:
            raise error
    return errors


async def refusable(work: Awaitable[Answer]) -> Answer:
    """Await what the brokers may refuse; what they say is for the log, not for clients."""
    try:
        return await work
    except KafkaError as error:
        logger.error("kafka.refused", why=str(error))
        raise LogUnavailable from error
