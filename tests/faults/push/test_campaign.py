"""The short form of `make faults-push`, and kills of processes that share deliveries: every law holds."""

from pathlib import Path

import pytest

from tests.cluster.nodes import processes
from tests.faults.push.campaign import PushCampaign
from tests.faults.push.sharing import Sharing, beside_a_service
from tests.support.pushed import Api
from tests.support.receiving import run_receiver
from tests.support.served import SERVICE_TOKEN

pytestmark = [pytest.mark.faults, pytest.mark.long]


@pytest.mark.embedded("it is one service that is killed")
async def test_nothing_is_lost_and_only_what_was_on_its_way_comes_twice(tmp_path: Path) -> None:
    with run_receiver(tmp_path) as receiver:
        result = await PushCampaign(tmp_path, receiver, 3, seed=7).run()

    assert result.violations == []
    assert result.published > 0
    assert result.repeated > 0  # kills hit deliveries
    assert result.dead > 0


@pytest.mark.alone
@pytest.mark.embedded("nodes share them in the other shape")
async def test_others_go_on_when_one_of_three_is_killed_and_one_of_the_two_that_are_left(tmp_path: Path) -> None:
    assert (await beside_a_service(tmp_path, processes=3, kills=2)).violations == []


@pytest.mark.alone
@pytest.mark.kafka
@pytest.mark.postgres
async def test_other_nodes_go_on_when_one_of_three_is_killed(tmp_path: Path) -> None:
    with run_receiver(tmp_path) as receiver:
        push = {"push_allow": "127.0.0.0/8", "push_ca_file": receiver.ca}
        with processes(tmp_path, 3, push) as (asked, *others):
            async with Api(asked.url, SERVICE_TOKEN) as api:
                found = await Sharing(api, receiver, others).run(kills=1)

    assert found.violations == []
