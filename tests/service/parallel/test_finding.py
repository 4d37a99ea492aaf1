"""Finding messages where most are not for a subscription."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ams.core.parallel_options import ParallelOptions
from ams.service.parallel.finding import LOOKS_FOR, SLICE
from tests.service.parallel.site import P, Site, ids_of, offsets
from tests.support.engines import open_engines

LAST = ParallelOptions(filter='hasPrefix(attributes.n, "9999")')


@pytest.fixture
async def site(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    async with open_engines(tmp_path) as engines:
        yield await Site(engines, getattr(request, "param", LAST)).made()


@pytest.mark.parametrize("most", [1, 10, 3000])
async def test_a_pull_looks_behind_all_that_the_filter_passes_over(site: Site, most: int) -> None:
    await site.publish(*range(5 * SLICE), 9999, 99990, 99991)

    assert offsets(await site.pull(most)) == [5000, 5001, 5002][:most]
    left = await site.pull(most) if most == 1 else []
    assert offsets(left) == ([5001] if most == 1 else [])


async def test_a_pull_that_looked_for_its_time_ends_and_the_next_one_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.publish(*range(3 * SLICE), 9999)
    read, starts = site.engines.log.read, []

    async def slowly(topic: Any, start: Any, **limits: int) -> Any:
        starts.append(start)
        site.engines.clock.advance(LOOKS_FOR // 2)
        return await read(topic, start, **limits)

    monkeypatch.setattr(site.engines.log, "read", slowly)
    assert await site.pull(SLICE) == []
    assert starts == [0, SLICE]
    assert offsets(await site.pull(SLICE)) == [3 * SLICE]


@pytest.mark.parametrize("site", [ParallelOptions(enable_message_ordering=True)], indirect=True)
async def test_a_pull_looks_behind_all_that_is_blocked_by_its_key(site: Site) -> None:
    await site.publish(*range(2 * SLICE), key=lambda n: "k" if n < 2 * SLICE - 1 else "other")

    assert offsets(await site.pull(1)) == [0]
    assert offsets(await site.pull(1)) == [2 * SLICE - 1]


async def test_a_larger_read_gives_no_more_bytes_than_asked_for_and_what_is_left_is_the_next(site: Site) -> None:
    await site.publish(*range(50), 9999, 99990, 99991)
    subscription = await site.subscription()

    found = await site.working.puller.pull(subscription, 10, project=P, holder="one", max_bytes=1)
    assert offsets(ids_of(found)) == [50]
    assert offsets(await site.pull()) == [51, 52]
