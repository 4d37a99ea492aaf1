import json

from tests.cli.apply.conftest import Files
from tests.cli.conftest import Ams

KEPT = """
projects:
  PROJECT:
    retention: 30d
    topics:
      readings: {retention: 12h}
      plain:
"""


def test_retention_is_set_changed_and_given_back(ams: Ams, files: Files) -> None:
    files.settle(KEPT)
    assert json.loads(ams("topics", "show", "readings", "-o", "json").stdout)["retentionSeconds"] == 43_200

    altered = files.settle(KEPT.replace("30d", "7d").replace("12h", "default"))

    assert altered.splitlines() == [
        f"~ project {files.project}: retention 604800",
        f"~ topic {files.project}/readings: retention 0",
    ]
    assert "retentionSeconds" not in json.loads(ams("topics", "show", "readings", "-o", "json").stdout)
