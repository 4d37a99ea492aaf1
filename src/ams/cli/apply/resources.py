"""What a file can declare, as values: resources, their fields, and where the file says so.

A resource is a key and its fields. Declared fields are those the file names, the others are left as they are; fields of
what exists are all that were read. Both spell values alike, so that equal means nothing to do:

    user          email, first_name, last_name, organization, description: text; service_roles: sorted names
    project       description: text; retention: seconds, 0 = the service's
    member        roles: sorted names
    schema        type: json or avro; schema, attributes: JSON objects
    topic         schema: name, "" = none; retention: seconds, 0 = the project's; access: sorted names
    subscription  topic: name; ackDeadline: seconds; push: fields of pushConfig, {} = pull; access: sorted names
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from ams.yaml_tree import Place

Fields = Mapping[str, Any]


class Kind(StrEnum):
    """Kinds of resources, in the order in which they need each other."""

    USER = "user"
    PROJECT = "project"
    MEMBER = "member"
    SCHEMA = "schema"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


class Key(NamedTuple):
    """Which resource."""

    kind: Kind
    project: str
    """The project it belongs to; empty for users and projects."""
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.project}/{self.name}" if self.project else f"{self.kind} {self.name}"


class Reference(NamedTuple):
    """Where a resource is named by another, and must be declared or exist."""

    place: Place
    target: Key


@dataclass(frozen=True, slots=True)
class Declared:
    """What the files say."""

    fields: Mapping[Key, Fields] = field(default_factory=dict)
    places: Mapping[Key, Place] = field(default_factory=dict)
    references: Sequence[Reference] = ()
    sections: frozenset[tuple[str, Kind]] = frozenset()
    """Projects and kinds for which the files have a section: what pruning may touch."""

    @property
    def projects(self) -> list[str]:
        """The names of the declared projects."""
        return [key.name for key in self.fields if key.kind is Kind.PROJECT]


@dataclass(frozen=True, slots=True)
class Existing:
    """What the service holds, as far as it was asked."""

    fields: Mapping[Key, Fields] = field(default_factory=dict)
    caller: str = ""
    """The user who asks; empty when the token is no user's."""
