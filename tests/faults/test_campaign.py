"""The short form of `make faults`: ten kills, and every law held over the history."""

from pathlib import Path

import pytest

from tests.faults.campaign import Campaign
from tests.faults.http_client import Kind
from tests.support import shape


@pytest.mark.faults
async def test_nothing_is_lost_and_no_law_broken_over_ten_kills(tmp_path: Path) -> None:
    result = await Campaign(tmp_path / "data", kills=10, seed=10, say=print).run()

    print(result.line())
    assert result.violations == []
    assert result.messages > 0
    assert shape.is_cluster() or (result.reused > 0 and result.ahead > 0)
    assert result.hit(Kind.BULK) >= 2
    assert result.hit(Kind.ACK) >= 2
    assert result.hit(Kind.SETTLE) >= 2
    assert result.hit(Kind.GOOGLE) >= 2
    assert result.streamed > 0
    assert result.letters > 0
