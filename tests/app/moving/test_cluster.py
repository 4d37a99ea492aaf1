"""From a data folder to Kafka and PostgreSQL, and back again."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ams.app.moving import export, import_
from ams.core.clock import ManualClock, SystemClock
from ams.storage.log.base import Log
from tests.app.moving.installation import DAY, furnish, furnish_without_service, installation, service, told
from tests.app.moving.lines import quiet


def lines(path: Path) -> list[bytes]:
    """Return what an export says, without when and by whom it was made."""
    return path.read_bytes().splitlines()[1:]


def registry_at(url: str) -> dict[str, str]:
    """Return the settings of a registry at a URL that holds a password."""
    parts = urlsplit(url)
    without = parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", "@"))
    return {"registry": without.geturl(), "registry_password": parts.password or ""}


async def offsets_at(log: Log, clock: ManualClock) -> dict[object, object]:
    times = [clock.now - DAY * day - shift for day in range(11) for shift in (0, 1, 5001, 6234, 6235, 8702)]
    return {(topic, time): await log.offset_at(topic, time) for topic in await log.topics() for time in times}


@pytest.mark.long
async def test_all_is_the_same_on_a_cluster_and_back_in_a_folder(
    tmp_path: Path, kafka_servers: str, kafka_prefix: str, postgres_url: str
):
    clock = ManualClock(SystemClock().wall() - 11 * DAY)  # brokers go by their own clocks: to them all is new enough
    cluster = {
        "log": "kafka", "kafka_servers": kafka_servers, "kafka_prefix": kafka_prefix, "kafka_replication": 1,
        "kafka_min_isr": 1, **registry_at(postgres_url),
    }  # fmt: skip
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    async with service(tmp_path / "old", clock) as api:
        await furnish(api, clock)
    async with installation(tmp_path / "old", clock) as old:
        await furnish_without_service(old)
    async with service(tmp_path / "old", clock) as api:  # when acknowledgements were is told until a restart only
        before = await told(api, clock)
    async with installation(tmp_path / "old", clock) as old:
        await export(old, str(one), quiet)
        found = await offsets_at(old.log, clock)

    async with installation(tmp_path / "node", clock, **cluster) as moved:
        await import_(moved, str(one), quiet)
        await export(moved, str(two), quiet)
        assert await offsets_at(moved.log, clock) == found
        assert await moved.log.weak() == {}
    async with service(tmp_path / "node", clock, **cluster) as api:
        after = await told(api, clock)
        assert {path for path in before if before[path] != after[path]} == set()
    async with installation(tmp_path / "new", clock) as back:
        await import_(back, str(two), quiet)
        await export(back, str(three), quiet)
        assert await offsets_at(back.log, clock) == found

    assert lines(one) == lines(two) == lines(three)
