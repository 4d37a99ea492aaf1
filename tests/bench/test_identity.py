"""Users of the bench are there: a look-up that finds nobody would measure nothing."""

from pathlib import Path

import pytest

from bench.identity import LookUp, Users, by_identity, by_named_token


@pytest.mark.parametrize("look_up", [by_named_token, by_identity])
def test_users_are_found_by_what_they_log_in_with(look_up: LookUp, tmp_path: Path) -> None:
    assert Users(tmp_path / "registry", 3).found_per_second(look_up, 0.02) > 0
