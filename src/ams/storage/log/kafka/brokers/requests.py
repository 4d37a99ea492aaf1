"""Requests that aiokafka lacks, in its own way of making them. Its classes are untyped."""

from collections.abc import Mapping
from io import BytesIO

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5, MetadataResponse_v5
from aiokafka.protocol.types import Array, Boolean, Int8, Int16, Int32, Schema, String

TOPIC = 2
"""What a resource is, in the requests about settings."""
SET, DELETE = 0, 1
"""What is done to a setting."""


class ListResponse(Response):
    """An answer about all topics, as bytes."""

    API_KEY = MetadataResponse_v5.API_KEY
    API_VERSION = MetadataResponse_v5.API_VERSION
    SCHEMA = MetadataResponse_v5.SCHEMA

    def __init__(self, data: bytes) -> None:
        """Take the answer."""
        self.data = data

    @classmethod
    def decode(cls, data: BytesIO) -> "ListResponse":
        """Leave the answer as it is."""
        return cls(data.read())


class ListStruct(RequestStruct):
    """The question of `ListTopics`."""

    API_KEY = MetadataRequest_v5.API_KEY
    API_VERSION = MetadataRequest_v5.API_VERSION
    SCHEMA = MetadataRequest_v5.SCHEMA
    RESPONSE_TYPE = ListResponse


class ListTopics(Request[ListStruct]):
    """Ask for all topics."""

    API_KEY = MetadataRequest_v5.API_KEY

    def build(self, request_struct_class: type[ListStruct]) -> ListStruct:
        """Make the request: no list of names means all, and none is to be made by asking."""
        return request_struct_class(None, False)


class AlterResponse(Response):
    """The answer to `AlterRequest`."""

    API_KEY = 44
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "resources",
            Array(
                ("error_code", Int16),
                ("error_message", String("utf-8")),
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
            ),
        ),
    )


class AlterStruct(RequestStruct):
    """IncrementalAlterConfigs, which aiokafka lacks; what it has replaces all settings of a topic by those given."""

    API_KEY = 44
    API_VERSION = 0
    RESPONSE_TYPE = AlterResponse
    SCHEMA = Schema(
        (
            "resources",
            Array(
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
                (
                    "configs",
                    Array(
                        ("config_name", String("utf-8")),
                        ("operation", Int8),
                        ("config_value", String("utf-8")),
                    ),
                ),
            ),
        ),
        ("validate_only", Boolean),
    )


class AlterRequest(Request[AlterStruct]):
    """Change some settings of a topic; None takes one back to the broker's default."""

    API_KEY = 44

    def __init__(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Take a topic's name and its changes."""
        self._name = name
        self._changes = changes

    def build(self, request_struct_class: type[AlterStruct]) -> AlterStruct:
        """Make the request."""
        changes = [
            (name, DELETE if value is None else SET, "" if value is None else value)
            for name, value in self._changes.items()
        ]
        return request_struct_class([(TOPIC, self._name, changes)], False)
