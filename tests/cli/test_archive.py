import json
import re
from pathlib import Path

import pytest

from ams.tables.snapshot import open_table
from tests.cli.conftest import Ams


def test_topics_are_kept_in_a_table(ams: Ams, tmp_path: Path) -> None:
    variables = {"AMS_PROJECT": "kept"}
    ams("projects", "create", "kept")
    for topic in ("plants", "stones"):
        ams("topics", "create", topic, **variables)
        ams("publish", topic, stdin="dry\nwet\n", **variables)

    first = ams("archive", "archive", "pl*", **variables)
    second = ams("archive", "archive", "-o", "json", **variables)

    assert re.fullmatch(r"archive: messages 2 topics 1 files 1 seconds \d+\.\d\n", first.stdout)
    told = json.loads(second.stdout)
    assert (told["messages"], told["topics"], told["files"]) == (2, 1, 1)
    assert sum(file.rows for file in open_table(str(tmp_path / "archive")).files) == 4


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--every", "soon"], 2, "--every 'soon' is no time such as 10s or 5m"),
        (["--every", "0s"], 2, "--every '0s' is no time such as 10s or 5m"),
        (["plants", "-p", "nowhere"], 4, ""),
    ],
)
def test_what_cannot_be_is_one_line(ams: Ams, arguments: list[str], code: int, reason: str) -> None:
    ran = ams("archive", "archive", *arguments, AMS_PROJECT="garden")

    assert (ran.returncode, ran.stdout) == (code, "")
    assert ran.stderr.startswith("ams: ")
    assert reason in ran.stderr
