import json

from ams import __version__
from tests.cli.conftest import Ams


def test_the_status_is_shown(ams: Ams) -> None:
    assert ams("status").stdout.splitlines()[0].split() == ["status", "ok"]
    assert json.loads(ams("status", "-o", "json").stdout)["status"] == "ok"


def test_both_versions_are_shown_also_without_a_token(ams: Ams) -> None:
    shown = ams("version", AMS_TOKEN="")
    for_programs = json.loads(ams("version", "-o", "json").stdout)

    assert shown.stdout.splitlines()[0].split() == ["client", __version__]
    assert for_programs["client"] == __version__
    assert "build_time" in for_programs["service"]
