"""Common values of requests, with their limits: resource names, durations, labels, update masks, pages.

Names of new resources follow Google's rule. Existing names of AMS may be shorter and begin with a digit; they are
accepted.
"""

import re
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from ams.core.ack_ids import MAX_ACK_DEADLINE, MIN_ACK_DEADLINE
from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.core.names import is_google_name, is_name, is_resource_name
from ams.pubsub.errors import NotSupported
from ams.pubsub.protos import Message, Timestamp
from ams.storage.registry.records import PageRequest

TOPICS, SUBSCRIPTIONS, SNAPSHOTS, SCHEMAS = "topics", "subscriptions", "snapshots", "schemas"
DELETED_TOPIC, DELETED_SCHEMA = "_deleted-topic_", "_deleted-schema_"
_RULE = (
    "Refer to the rule of names for more information: 3 to 255 letters, digits and -_.~+%, a letter first, not"
    " beginning with goog"
)
MAX_LABELS = 64
USUAL_PAGE, MOST_PAGE = 100, 1000
_LABEL_KEY, _LABEL_VALUE = re.compile(r"[^\W\dA-Z_][\w-]{0,62}"), re.compile(r"[\w-]{0,63}")


class PubsubName(NamedTuple):
    """A resource name, read."""

    project: str
    kind: str  # `topics` and so on; empty: it is the project itself
    leaf: str  # the last part of the name

    @property
    def path(self) -> str:
        """The whole of it."""
        return f"projects/{self.project}/{self.kind}/{self.leaf}" if self.kind else f"projects/{self.project}"


def read_name(text: str, *kinds: str) -> PubsubName:
    """Read the name of a resource of one of these kinds, of a project without any; raise `InvalidInput`."""
    match text.split("/"):
        case ["projects", project] if not kinds and is_name(project):
            return PubsubName(project, "", project)
        case ["projects", project, kind, leaf] if kind in kinds and is_name(project) and is_resource_name(leaf):
            return PubsubName(project, kind, leaf)
    raise _invalid(text)


def name_at(path: str, *kinds: str) -> Callable[[Message], PubsubName]:
    """Return a function that reads the name in a field of requests, as `read_name` does."""
    text = attrgetter(path)
    return lambda request: read_name(text(request), *kinds)


def check_new_name(name: PubsubName) -> None:
    """Raise `InvalidInput` unless a new resource may have this name."""
    if not is_google_name(name.leaf):
        raise _invalid(name.path)


def name_in(text: str, project: str, kind: str) -> str:
    """Return the last part of a name that must be of this project and kind; raise `InvalidInput`."""
    name = read_name(text, kind)
    if name.project != project:
        raise InvalidInput(f"The resource must be in the same project (name={text}).")
    return name.leaf


def _invalid(text: str) -> InvalidInput:
    return InvalidInput(f"Invalid resource name given (name={text}). {_RULE}.")


def span(value: Any) -> Milliseconds:
    """Return a duration in milliseconds, rounded down."""
    return Milliseconds(value.seconds * 1000 + value.nanos // 1_000_000)


def timestamp(moment: Milliseconds) -> Any:
    """Return a moment as a message of Google's."""
    return Timestamp(seconds=moment // 1000, nanos=moment % 1000 * 1_000_000)


def moment(value: Any) -> Milliseconds:
    """Return a timestamp in milliseconds since the epoch, rounded up."""
    return Milliseconds(value.seconds * 1000 + -(-value.nanos // 1_000_000))


def labels(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return labels; raise `InvalidInput` for more than 64, and for one that is none."""
    if len(given) > MAX_LABELS:
        raise InvalidInput(f"Invalid labels: at most {MAX_LABELS} are allowed.")
    for key, value in given.items():
        is_fit = _LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)
        if not is_fit or key != key.lower() or value != value.lower():
            raise InvalidInput(f"Invalid labels: {key!r} with value {value[:63]!r}.")
    return dict(given)


def check_ack_deadline(seconds: int, least: int = MIN_ACK_DEADLINE, *, whose: str = "The") -> None:
    """Raise `InvalidInput` unless the seconds are from `least` to the maximum."""
    if not least <= seconds <= MAX_ACK_DEADLINE:
        raise InvalidInput(
            f"Invalid ack deadline given (ack_deadline={seconds}). {whose} ack deadline must be between {least} and"
            f" {MAX_ACK_DEADLINE} seconds."
        )


def page_request(request: Message) -> PageRequest:
    """Return which page of a list is asked for; raise `InvalidInput` for a size below 0."""
    if request.page_size < 0:
        raise InvalidInput("You have passed an invalid argument to the service (argument=page_size).")
    return PageRequest(min(request.page_size or USUAL_PAGE, MOST_PAGE), request.page_token)


def mask(request: Message, kind: str, changeable: Collection[str]) -> Collection[str]:
    """Return first parts of an update mask's paths; raise `InvalidInput` for none, unknown and unchangeable ones."""
    where = f"Update{kind}Request"
    if not request.update_mask.paths:
        raise InvalidInput(f"The update_mask in the {where} must be set, and must contain a non-empty paths list.")
    known = getattr(request, kind.lower()).DESCRIPTOR.fields_by_name
    changed = [path.partition(".")[0] for path in request.update_mask.paths]
    for path, first in zip(request.update_mask.paths, changed, strict=True):
        if first not in known:
            raise InvalidInput(f"Invalid update_mask provided in the {where}: '{path}' is not a known {kind} field.")
        if first not in changeable:
            raise InvalidInput(
                f"Invalid update_mask provided in the {where}: the '{first}' field in the {kind} is not mutable."
            )
    return changed


def refuse(message: Message, reasons: Mapping[str, str]) -> None:
    """Raise `NotSupported` for the first of these fields that a request sets; `reasons` say why it is not there."""
    is_set = {field.name for field, _ in message.ListFields()}
    for field, reason in reasons.items():
        if field in is_set:
            raise NotSupported(f"The field {field} is not supported: {reason}.")


def merge(current: Message, wanted: Message, update_mask: Any) -> Message:
    """Return a resource as it is now, but for what the mask names; raise `InvalidInput` for an unknown path."""
    if not update_mask.IsValidForDescriptor(current.DESCRIPTOR):
        raise InvalidInput(f"Invalid update_mask provided: '{', '.join(update_mask.paths)}' has an unknown field.")
    for path in update_mask.paths:  # what it goes through is there, so that an inner field is cleared, not left
        outer = wanted
        for name in path.split(".")[:-1]:
            outer = getattr(outer, name)
            outer.SetInParent()
    update_mask.MergeMessage(wanted, current, True, True)
    return current
