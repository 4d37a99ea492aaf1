"""The short form of `make faults-cluster`: one of each kind of part is lost under load, and every law held."""

from pathlib import Path

import pytest

from tests.faults.cluster.campaign import Campaign
from tests.faults.cluster.faults import BY_NAME
from tests.faults.cluster.ledger import line

pytestmark = [
    pytest.mark.alone,
    pytest.mark.long,
    pytest.mark.faults,
    pytest.mark.kafka,
    pytest.mark.postgres,
    pytest.mark.haproxy,
]


async def test_an_owner_and_then_one_of_each_are_lost_and_nobody_is_let_down(tmp_path: Path) -> None:
    faults = [BY_NAME[name] for name in ("kill-owner", "one-of-each")]
    entries = await Campaign(tmp_path, faults, runs=1, seed=5, say=print).go()

    print(line(entries))
    assert [entry.broken for entry in entries] == [[], []]
    assert all(entry.requests > 100 and entry.taken_over for entry in entries)
