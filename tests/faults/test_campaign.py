"""The short form of `make faults`: a kill of each kind, and every law held over the history."""

from pathlib import Path

import pytest

from tests.faults.campaign import AIMS, Campaign
from tests.support import shape


@pytest.mark.faults
@pytest.mark.long
async def test_nothing_is_lost_and_no_law_broken_over_a_kill_of_each_kind(tmp_path: Path) -> None:
    result = await Campaign(tmp_path / "data", kills=len(AIMS), seed=10, say=print).run()

    print(result.line())
    assert result.violations == []
    assert result.messages > 0
    assert shape.is_cluster() or (result.segments_reused > 0 and result.steps_ahead > 0)
    assert all(result.hit(kind) for kind in AIMS[:-1])
    assert result.streamed > 0
    assert result.dead_letters > 0
