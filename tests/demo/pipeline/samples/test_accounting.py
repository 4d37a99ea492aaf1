from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting.envelope import Trust, opened
from ams.pipeline.jobs.accounting.reader import Reader
from demo.pipeline.samples.accounting import TOPICS, messages
from demo.pipeline.samples.mishaps import NONE, Mishaps

DAY = date(2024, 3, 3)
NOW = datetime(2024, 4, 1, tzinfo=UTC)


def made(seed: int, mishaps: Mishaps = NONE) -> list[bytes]:
    return [each.data for each in messages(seed, DAY, jobs=100, machines=5, signed=False, mishaps=mishaps)]


def test_a_seed_makes_the_same_texts_and_mishaps_change_their_order_alone() -> None:
    moved = made(3, Mishaps(late=0.5, doubled=0, broken=0))

    assert made(1) == made(1) != made(2)
    assert made(3) != moved
    assert sorted(made(3)) == sorted(moved)


def test_messages_are_signed_by_their_sites_and_some_sealed_for_the_service(tmp_path: Path) -> None:
    made = list(messages(5, DAY, jobs=600, machines=12, encrypted=0.3, keys=str(tmp_path), mishaps=NONE))
    trust = Trust(str(tmp_path / "ca.pem"), str(tmp_path / "service.key"), str(tmp_path / "service.pem"))
    trust.check()
    closed = [each for each in made if b"enveloped-data" in each.data]

    found = [(each.topic, record) for each in made for record in Reader(trust, True, NOW)(each.data, {})]

    assert {topic for topic, _ in found} == set(TOPICS)
    assert not [record for _, record in found if isinstance(record, Broken)]
    assert {record["kind"] for _, record in found} == {"job", "sync", "vm", "public_ip", "storage"}  # type: ignore[index]  # none is broken
    assert 0 < len(closed) < len(made)
    with pytest.raises(Broken, match="encrypted"):
        opened(closed[0].data, Trust())
    assert (tmp_path / "service.key").stat().st_mode & 0o077 == 0
