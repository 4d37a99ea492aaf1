"""Engines with faults, or with concurrent events."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def fail_calls(owner: object, method: str, error: type[Exception]) -> Iterator[None]:
    async def fail(*_: object, **__: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, fail)
        yield


Act = Callable[[], Awaitable[object]]


@contextlib.contextmanager
def interrupt_call(owner: object, method: str, before: Act | None = None, after: Act | None = None) -> Iterator[None]:
    """Run something right before or right after the next call of a method."""
    whole = getattr(owner, method)
    with pytest.MonkeyPatch.context() as patch:

        async def call(*given: Any, **more: Any) -> Any:
            patch.setattr(owner, method, whole)
            if before:
                await before()
            found = await whole(*given, **more)
            if after:
                await after()
            return found

        patch.setattr(owner, method, call)
        yield
