"""The short form of `make faults-push`: five kills while messages are delivered, and every law held."""

from pathlib import Path

import pytest

from tests.faults.push.campaign import Campaign
from tests.support.receiving import received

KILLS = 5


@pytest.mark.faults
@pytest.mark.embedded("it is one service that is killed")
async def test_nothing_is_lost_and_only_what_was_on_its_way_comes_twice(tmp_path: Path) -> None:
    with received(tmp_path) as receiver:
        result = await Campaign(tmp_path, receiver, KILLS, seed=7, say=print).run()

    print(result.line())
    assert result.violations == []
    assert result.published > 0
    assert result.repeated > 0  # kills hit deliveries
    assert result.dead > 0
