"""What the list of events is asked for by, wherever it is served: values of the query in, the answer's shape out."""

from collections.abc import Mapping

from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.storage.audit.event import DONE, FAILED, REFUSED, AuditEvent
from ams.storage.audit.records import AuditRecords, Wanted
from ams.storage.audit.shape import Lines, moment, shown

FILTERS = ("since", "until", "actor", "action", "address", "result")
"""Query parameters; `pageSize` and `pageToken` are those of all lists."""


def wanted(said: Mapping[str, str]) -> Wanted:
    """Read the filters; an empty one says nothing. Raises `InvalidInput` "Invalid since", "until" or "result"."""
    result = said.get("result", "")
    if result and result not in (DONE, REFUSED, FAILED):
        raise InvalidInput("Invalid result")
    return Wanted(
        since=_moment(said, "since"),
        until=_moment(said, "until"),
        actor=said.get("actor", ""),
        action=said.get("action", ""),
        address=said.get("address", ""),
        result=result,
    )


async def listing(records: AuditRecords, asked: Wanted, size: int, token: str) -> Lines:
    """Return a page as it is answered. Raises `InvalidInput` "Invalid page token", `RegistryUnavailable`."""
    page = await records.list(asked, size, token)
    return Lines([shown(event) for event in page.items], page.next_token)


def matches(asked: Wanted, event: AuditEvent) -> bool:
    """Whether an event is one of those asked for."""
    return (
        (asked.since is None or event.at >= asked.since)
        and (asked.until is None or event.at < asked.until)
        and event.action.startswith(asked.action)
        and asked.actor in ("", event.actor)
        and asked.address in ("", event.address)
        and asked.result in ("", event.result)
    )


def _moment(said: Mapping[str, str], name: str) -> Milliseconds | None:
    text = said.get(name, "")
    if not text:
        return None
    try:
        return moment(text)
    except (ValueError, OverflowError):
        raise InvalidInput(f"Invalid {name}") from None
