"""Administration requests to brokers: list, create, delete, describe, alter topics, delete records.

Every broker forwards requests to the controller. `until` is the event loop time of the timeout, which raises
`LogUnavailable`.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, TypeVar

import structlog
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol import admin
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest, MetadataRequest_v5, MetadataResponse_v5
from aiokafka.protocol.types import Array, Boolean, Int8, Int16, Int32, Schema, String

from ams.core.errors import LogUnavailable
from ams.core.names import Offset, TopicId
from ams.storage.log.kafka.connection import META, KafkaConnection, NodeId, check, error_of
from ams.storage.log.kafka.partition import Listed, Partition, read_topic_list

_TOPIC, _SET, _DELETE = 2, 0, 1  # resource type and operations in config requests
logger = structlog.get_logger("ams.log")
Answer = TypeVar("Answer")
Configs = Mapping[str, str]  # Kafka's topic settings by name
_PAUSE = 0.02
_TEXT = String("utf-8")
_CHANGE = (("name", _TEXT), ("operation", Int8), ("value", _TEXT))
_TIMEOUT_MS = 3000  # how long a broker may wait for the controller


class _ListResponse(MetadataResponse_v5):
    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def decode(cls, data: BytesIO) -> "_ListResponse":
        return cls(data.read())


class _ListStruct(MetadataRequest_v5):
    RESPONSE_TYPE = _ListResponse


class _ListTopics(Request[_ListStruct]):
    API_KEY = MetadataRequest_v5.API_KEY

    def build(self, request_struct_class: type[_ListStruct]) -> _ListStruct:
        return request_struct_class(None, False)  # all topics, no automatic creation


class _AlterResponse(Response):
    API_KEY = 44
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("resources", Array(("error_code", Int16), ("error_message", _TEXT), ("type", Int8), ("name", _TEXT))),
    )


class _AlterStruct(RequestStruct):
    """IncrementalAlterConfigs. aiokafka has only AlterConfigs, which replaces all settings of a topic."""

    API_KEY = 44
    API_VERSION = 0
    RESPONSE_TYPE = _AlterResponse
    SCHEMA = Schema(
        ("resources", Array(("type", Int8), ("name", _TEXT), ("configs", Array(*_CHANGE)))), ("validate_only", Boolean)
    )


class _AlterRequest(Request[_AlterStruct]):
    """Change some settings of a topic; None resets one to the broker's default."""

    API_KEY = 44

    def __init__(self, name: str, changes: Mapping[str, str | None]) -> None:
        self._name, self._changes = name, changes

    def build(self, request_struct_class: type[_AlterStruct]) -> _AlterStruct:
        changes = [(name, _DELETE if value is None else _SET, value or "") for name, value in self._changes.items()]
        return request_struct_class([(_TOPIC, self._name, changes)], False)


async def list_topics(connection: KafkaConnection, prefix: str, until: float) -> dict[TopicId, Listed]:
    """Return our topics as a broker lists them."""
    return await connection.ask_any(_ListTopics(), lambda answer: read_topic_list(prefix, answer.data), until=until)


async def create_topics(
    connection: KafkaConnection, topics: Sequence[tuple[str, Configs]], replication: int, until: float
) -> list[KafkaError | None]:
    """Create topics with one partition; return the error of each. An existing topic is no error."""
    names = [name for name, _ in topics]
    asked: Any = [(name, 1, replication, [], list(configs.items())) for name, configs in topics]
    request = admin.CreateTopicsRequest(asked, _TIMEOUT_MS, False)
    return await connection.ask_any(
        request, lambda answer: _refusals(answer.topic_errors, names, TopicAlreadyExistsError), until=until
    )


async def wait_for_leaders(connection: KafkaConnection, node: NodeId, names: Iterable[str]) -> None:
    """Wait until a broker knows a leader of each topic. Returns early if the broker does not answer."""
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


async def delete_topics(connection: KafkaConnection, names: Sequence[str], until: float) -> list[KafkaError | None]:
    """Delete topics; return the error of each. A missing topic is no error."""
    request = admin.DeleteTopicsRequest(list(names), _TIMEOUT_MS)
    return await connection.ask_any(
        request, lambda answer: _refusals(answer.topic_error_codes, names, UnknownTopicOrPartitionError), until=until
    )


async def describe(
    connection: KafkaConnection, names: Iterable[str], wanted: Iterable[str], until: float
) -> dict[str, Configs]:
    """Return settings of topics by name; missing topics are left out."""
    resources: Any = [(_TOPIC, name, list(wanted)) for name in names]

    def answer(response: Any) -> dict[str, Configs]:
        found: dict[str, Configs] = {}
        for code, message, _, name, entries in response.resources:
            if for_code(code) is not UnknownTopicOrPartitionError:
                check(code, message)
                found[name] = {entry[0]: entry[1] for entry in entries}
        return found

    return await connection.ask_any(admin.DescribeConfigsRequest(resources), answer, until=until)


async def alter(
    connection: KafkaConnection, partition: Partition, changes: Mapping[str, str | None], until: float
) -> None:
    """Change settings of a topic; raises `TopicGone`."""

    def answer(response: Any) -> None:
        for code, message, *_ in response.resources:
            check(code, message)

    await connection.ask_any(_AlterRequest(partition.name, changes), answer, until=until)


async def delete_records(connection: KafkaConnection, partition: Partition, before: Offset, until: float) -> None:
    """Delete the messages below one of our offsets, at once."""
    cut = [(partition.name, [(0, before - partition.first)])]

    def answer(response: Any) -> None:
        for _, partitions, *_ in response.topics:
            for _, _, code, *_ in partitions:
                check(code)

    await connection.ask(partition, admin.DeleteRecordsRequest(cut, _TIMEOUT_MS, {}), answer, until=until)


def _refusals(
    answers: Iterable[tuple[Any, ...]], names: Iterable[str], done_before: type[KafkaError]
) -> list[KafkaError | None]:
    """Return the error of each name. Raises transient errors: the retry of the whole request ignores `done_before`."""
    said = {name: error_of(*code_and_text) for name, *code_and_text in answers}
    errors = [said.get(name, KafkaError("no answer")) for name in names]
    errors = [None if isinstance(error, done_before) else error for error in errors]
    for error in errors:
        if error is not None and error.retriable:
            raise error
    return errors


async def await_refusable(work: Awaitable[Answer], **what: str) -> Answer:
    """Await a request; log the brokers' error and raise `LogUnavailable`, as clients must not see it."""
    try:
        return await work
    except KafkaError as error:
        logger.error("kafka.refused", **what, why=repr(error))
        raise LogUnavailable from error
