"""How answers are written, long lists with breaths in between; what they are made of is `ams.wire`."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from ams.core.versions import version_of
from ams.http.routing import Versioned
from ams.storage.registry.records import Page
from ams.wire.base import ListPage

T = TypeVar("T")
U = TypeVar("U")

EMPTY = b""
"""The body of answers that say nothing but their 200."""
EMPTY_OBJECT = b"{}"

encode = msgspec.json.encode


def versioned(shown: object, state: object) -> Versioned:
    """Write an answer that shows a resource, with the version of its state."""
    return Versioned(encode(shown), version_of(state))


_BREATH = 500
"""Items of a list that are shown between two breaths: a list without pages may be as long as it likes."""


async def each(items: Sequence[T], shown: Callable[[T], U]) -> list[U]:
    """Show the items of a list, letting other requests in between."""
    found = [shown(item) for item in items[:_BREATH]]
    for start in range(_BREATH, len(items), _BREATH):
        await asyncio.sleep(0)
        found += [shown(item) for item in items[start : start + _BREATH]]
    return found


async def encode_page(kind: Callable[..., ListPage], name: str, page: Page[T], shown: Callable[[T], object]) -> bytes:
    """Write a page of a list (contract 4) as its kind; `name` is the member that holds the items."""
    items = {name: await each(page.items, shown)}
    return encode(kind(**items, next_page_token=page.next_token, total_size=page.total))
