"""Engines that fail after a request's first change: its later calls do not work."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from ams.core.errors import AmsError, CursorsUnavailable, LogUnavailable, RegistryUnavailable
from ams.core.telemetry import REQUEST
from ams.storage.cursors.embedded import EmbeddedCursors
from ams.storage.database.database import Database
from ams.storage.log.embedded import EmbeddedLog
from ams.storage.registry.idempotency import IdempotencyRecords


def fail_after_change(patch: pytest.MonkeyPatch, is_meant: Callable[[bytes], bool]) -> None:
    """Let this process's engines fail for requests with chosen ids after their first change."""
    changed: set[bytes] = set()

    def replace(owner: type, error: type[AmsError], *methods: str, changes: bool = False) -> None:
        for method in methods:
            patch.setattr(owner, method, failing(getattr(owner, method), error, changes))

    def failing(whole: Callable[..., Any], error: type[AmsError], changes: bool) -> Callable[..., Any]:
        @wraps(whole)
        async def call(*given: Any, **more: Any) -> Any:
            request = REQUEST.get()
            if request in changed:
                raise error
            result = await whole(*given, **more)
            if changes and request and is_meant(request):
                changed.add(request)
            return result

        return call

    async def delete_old_claims(*_: object) -> None:
        """Replace a step before a deletion that removes old data anyway."""

    patch.setattr(IdempotencyRecords, "delete_old_claims", delete_old_claims)
    replace(Database, RegistryUnavailable, "write", "put", changes=True)
    replace(Database, RegistryUnavailable, "read")
    replace(EmbeddedLog, LogUnavailable, "create", "drop", "set_retention", "bounds", "read", "offset_at")
    replace(EmbeddedCursors, CursorsUnavailable, "seek", "restore", changes=True)
    replace(EmbeddedCursors, CursorsUnavailable, "create", "drop", "position", "progress", "retain")
