"""The short form of `make faults-cluster`: one of each kind of part is lost under load, and every law held."""

from pathlib import Path

import pytest

from tests.faults.cluster.campaign import Campaign
from tests.faults.cluster.faults import BY_NAME
from tests.faults.cluster.ledger import line

pytestmark = [pytest.mark.long, pytest.mark.faults, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.haproxy]


async def test_a_node_a_leader_and_the_primary_are_lost_and_nobody_is_let_down(tmp_path: Path) -> None:
    [entry] = await Campaign(tmp_path, [BY_NAME["one-of-each"]], runs=1, seed=5, say=print).go()

    print(line([entry]))
    assert entry.broken == []
    assert entry.requests > 100
