"""Resource names as `projects/P/topics/T`, and the rule for new ones.

The rule is Google's where AMS has the characters for it: 3 to 255 letters, digits, dashes and underscores, a letter
first, not `goog`. Names that AMS made may be shorter and begin with a digit: they are read as they are.
"""

import re
from typing import NamedTuple

from ams.core.errors import InvalidInput
from ams.core.names import is_name

TOPICS, SUBSCRIPTIONS, SNAPSHOTS, SCHEMAS = "topics", "subscriptions", "snapshots", "schemas"
DELETED_TOPIC, DELETED_SCHEMA = "_deleted-topic_", "_deleted-schema_"
_NEW = re.compile(r"(?![gG][oO][oO][gG])[a-zA-Z][a-zA-Z0-9_-]{2,254}")
_RULE = (
    "Refer to the rule of names for more information: 3 to 255 letters, digits, dashes and underscores, a letter first,"
    " not beginning with goog"
)


class Name(NamedTuple):
    """What a resource name says."""

    project: str
    kind: str
    """`topics` and so on; empty: it is the project itself."""
    leaf: str
    """The last part."""

    @property
    def path(self) -> str:
        """The whole of it."""
        return f"projects/{self.project}/{self.kind}/{self.leaf}" if self.kind else f"projects/{self.project}"


def read(text: str, *kinds: str) -> Name:
    """Read the name of a resource of one of these kinds, of a project without any; raise `InvalidInput`."""
    parts = text.split("/")
    if len(parts) == 2 and not kinds and parts[0] == "projects" and is_name(parts[1]):
        return Name(parts[1], "", parts[1])
    if len(parts) == 4 and parts[0] == "projects" and parts[2] in kinds and is_name(parts[1]) and is_name(parts[3]):
        return Name(parts[1], parts[2], parts[3])
    raise _invalid(text)


def check_new(name: Name) -> None:
    """Raise `InvalidInput` unless a new resource may have this name."""
    if not _NEW.fullmatch(name.leaf):
        raise _invalid(name.path)


def in_project(text: str, project: str, kind: str) -> str:
    """Return the last part of a name that must be of this project and kind; raise `InvalidInput`."""
    name = read(text, kind)
    if name.project != project:
        raise InvalidInput(f"The resource must be in the same project (name={text}).")
    return name.leaf


def _invalid(text: str) -> InvalidInput:
    return InvalidInput(f"Invalid resource name given (name={text}). {_RULE}.")
