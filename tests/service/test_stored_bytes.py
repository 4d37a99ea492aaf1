"""Stored bytes of projects: limits are those that were said last."""

import asyncio
from collections.abc import Sequence

import pytest

from ams.access.admission import Caller
from ams.core.quotas import STORED_BYTES
from ams.service.stored_bytes import StoredBytes
from ams.storage.registry.records import Project
from tests.support.engines import Engines


async def test_a_quota_changed_during_a_measurement_holds_at_once(
    engines: Engines, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The measurement has read the old quota, and ends after the new one is followed."""
    project, projects = caller.project.id, engines.registry.projects
    stored = StoredBytes(engines.registry, engines.log, engines.clock)
    await projects.change_quotas(project, {STORED_BYTES: 60})
    await stored.measure()
    read, go_on, all_of = asyncio.Event(), asyncio.Event(), projects.all

    async def slow() -> Sequence[Project]:
        found = await all_of()
        read.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(projects, "all", slow)
    measuring = asyncio.create_task(stored.measure())
    await read.wait()
    stored.follow(project, {STORED_BYTES: 0})
    go_on.set()
    await measuring

    assert stored.limit(project) == 0
