"""Memory that is counted while it is held, if it is not small: bodies of requests, and answers that are not read."""

import contextlib
from collections.abc import Callable
from typing import Generic, TypeVar

Holder = TypeVar("Holder")

SMALL = 2**16
"""Bytes of a body or an answer that are not counted: connections are."""
_NOT_COUNTED = contextlib.nullcontext()


class _Held(contextlib.AbstractContextManager[None], Generic[Holder]):
    """A class, as a generator would be made for each pull."""

    __slots__ = ("_count", "_holder", "_size")

    def __init__(self, count: Callable[[Holder, int], None], holder: Holder, size: int) -> None:
        self._count, self._holder, self._size = count, holder, size

    def __enter__(self) -> None:
        self._count(self._holder, self._size)

    def __exit__(self, *_: object) -> None:
        self._count(self._holder, -self._size)


def held(count: Callable[[Holder, int], None], holder: Holder, size: int) -> contextlib.AbstractContextManager[None]:
    """Have bytes counted for their holder while the block runs, and taken off again after it."""
    return _Held(count, holder, size) if size > SMALL else _NOT_COUNTED
