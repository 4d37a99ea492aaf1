"""Several `ams push` share a service's subscriptions; killed ones are replaced by the others."""

from pathlib import Path

import pytest

from tests.faults.push.sharing import beside_a_service

pytestmark = [pytest.mark.faults, pytest.mark.embedded("tests/cluster/test_push.py has the other shape")]


@pytest.mark.long
async def test_others_go_on_when_one_of_three_is_killed_and_one_of_the_two_that_are_left(tmp_path: Path) -> None:
    found = await beside_a_service(tmp_path, processes=3, kills=2)

    print(found.line())
    assert found.violations == []
