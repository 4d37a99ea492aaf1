"""The short form of `make faults-cluster`: one fault of each part, on one cluster, and every law held."""

from pathlib import Path

import pytest

from tests.faults.cluster.campaign import Campaign
from tests.faults.cluster.faults import BY_NAME
from tests.faults.cluster.ledger import line

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.haproxy]

FAULTS = ("kill-node", "kill-leader", "promote-standby")


async def test_a_node_a_leader_and_the_primary_are_lost_and_nobody_is_let_down(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, [BY_NAME[name] for name in FAULTS], runs=1, seed=5, say=print)

    entries = await campaign.go()

    print(line(entries))
    assert [each.fault for each in entries] == list(FAULTS)
    assert [sentence for each in entries for sentence in each.broken] == []
    assert all(each.requests > 100 for each in entries)
