"""Values that many requests have: durations, labels, update masks, pages; each with its limits."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.pubsub.errors import NotSupported
from ams.pubsub.protos import Duration, Message, Timestamp
from ams.storage.registry.records import Page, PageRequest

MOST_LABELS = 64
USUAL_PAGE, MOST_PAGE = 100, 1000
_KEY = r"[^\W\dA-Z_][\w-]{0,62}"
_LABEL_KEY, _LABEL_VALUE = re.compile(_KEY), re.compile(r"[\w-]{0,63}")


def duration(span: Milliseconds) -> Any:
    """Return a span as Google shows it."""
    return Duration(seconds=span // 1000, nanos=span % 1000 * 1_000_000)


def span(value: Any) -> Milliseconds:
    """Return a duration in milliseconds; what is finer is cut off."""
    return Milliseconds(value.seconds * 1000 + value.nanos // 1_000_000)


def timestamp(moment: Milliseconds) -> Any:
    """Return a moment as Google shows it."""
    return Timestamp(seconds=moment // 1000, nanos=moment % 1000 * 1_000_000)


def moment(value: Any) -> Milliseconds:
    """Return a timestamp in milliseconds since the epoch; what is finer is rounded up."""
    return Milliseconds(value.seconds * 1000 + -(-value.nanos // 1_000_000))


def labels(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return labels; raise `InvalidInput` for more than 64, and for one that is none."""
    if len(given) > MOST_LABELS:
        raise InvalidInput(f"Invalid labels: at most {MOST_LABELS} are allowed.")
    for key, value in given.items():
        if not _is_label(_LABEL_KEY, key) or not _is_label(_LABEL_VALUE, value):
            raise InvalidInput(f"Invalid labels: {key!r} with value {value[:63]!r}.")
    return dict(given)


def _is_label(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.fullmatch(text) is not None and text == text.lower()


def page_request(request: Message) -> PageRequest:
    """Return which page of a list is asked for; raise `InvalidInput` for a size below 0."""
    if request.page_size < 0:
        raise InvalidInput("You have passed an invalid argument to the service (argument=page_size).")
    return PageRequest(min(request.page_size or USUAL_PAGE, MOST_PAGE), request.page_token)


def fill_page(answer: Message, items: Any, page: Page[Any], shown: Callable[[Any], Any]) -> Message:
    """Return an answer with the items of a page added to its list."""
    items.extend([shown(each) for each in page.items])
    answer.next_page_token = page.next_token
    return answer


def mask(request: Message, kind: str, known: Collection[str], changeable: Collection[str]) -> Collection[str]:
    """Return the first parts of the paths of an update mask.

    Raises `InvalidInput` for none, for one that is no field of a `kind`, and for one that cannot change.
    """
    where = f"Update{kind}Request"
    if not request.update_mask.paths:
        raise InvalidInput(f"The update_mask in the {where} must be set, and must contain a non-empty paths list.")
    for path in request.update_mask.paths:
        first = path.partition(".")[0]
        if first not in known:
            raise InvalidInput(f"Invalid update_mask provided in the {where}: '{path}' is not a known {kind} field.")
        if first not in changeable:
            raise InvalidInput(
                f"Invalid update_mask provided in the {where}: the '{first}' field in the {kind} is not mutable."
            )
    return [each.partition(".")[0] for each in request.update_mask.paths]


def refuse(message: Message, reasons: Mapping[str, str]) -> None:
    """Raise `NotSupported` for the first of these fields that a request sets; `reasons` say why it is not there."""
    is_set = {field.name for field, _ in message.ListFields()}
    for field, reason in reasons.items():
        if field in is_set:
            raise NotSupported(f"The field {field} is not supported: {reason}.")


def merged(current: Message, wanted: Message, update_mask: Any) -> Message:
    """Return a resource as it is to be: as it is now, but for what the mask names.

    Raises `InvalidInput` for a path within a field that there is not.
    """
    if not update_mask.IsValidForDescriptor(current.DESCRIPTOR):
        raise InvalidInput(f"Invalid update_mask provided: '{', '.join(update_mask.paths)}' has an unknown field.")
    for path in update_mask.paths:
        _set_outer(wanted, path)
    update_mask.MergeMessage(wanted, current, True, True)
    return current


def _set_outer(wanted: Message, path: str) -> None:
    """Let what a path goes through be there, so that an inner field that is not set is cleared, not left."""
    for name in path.split(".")[:-1]:
        wanted = getattr(wanted, name)
        wanted.SetInParent()
