"""The program `ams` with a fault planted deep in it, triggered when a file exists."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from ams.app import lifecycle
from ams.cli import main
from ams.storage.cursors.embedded import EmbeddedCursors
from ams.storage.log.embedded.committer import Committer

FAULT, TRIGGER = "PLANTED_FAULT", "PLANTED_TRIGGER"  # variables: which fault, and the path of the file


class Planted(BaseException):
    """An unexpected exception."""


def _dying(whole: Callable[..., Any]) -> Callable[..., Any]:
    def function(*given: Any) -> Any:
        if os.path.exists(os.environ[TRIGGER]):
            raise Planted
        return whole(*given)

    return function


async def _hanging(_: object) -> None:
    await asyncio.to_thread(asyncio.run, asyncio.Event().wait())


def plant(fault: str) -> None:
    if fault == "log":
        Committer._take = _dying(Committer._take)  # type: ignore[method-assign]
    elif fault == "cursors":
        Committer._commit_cursors = _dying(Committer._commit_cursors)  # type: ignore[method-assign]
    elif fault == "hanging":
        EmbeddedCursors.close = _hanging  # type: ignore[method-assign,assignment]
        lifecycle.STOP_SECONDS = 1


if __name__ == "__main__":
    plant(os.environ[FAULT])
    main.main()
