import os
import re
import sys
from pathlib import Path

import pytest

from ams.cli import tables as commands
from ams.cli.exits import Usage
from ams.tables.snapshot import open_table
from tests.cli.conftest import Ams
from tests.tables.making import MONDAY, TUESDAY, append, contents, table, write


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A table of three batches in the folder the command runs in."""
    root = tmp_path / "days"
    append(table(root), 0, [(1, MONDAY), (2, TUESDAY)])
    append(table(root), 1, [(3, MONDAY)])
    append(table(root), 2, [(4, TUESDAY)])
    return root


def test_the_history_is_a_line_for_each_version(ams: Ams, days: Path) -> None:
    ran = ams("pipeline", "table", "history", "days")

    assert ran.returncode == 0
    header, newest, *_, oldest = ran.stdout.splitlines()
    assert header.split() == ["VERSION", "TIME", "WHAT", "BATCH", "FILES", "ROWS", "FILES", "GONE"]
    assert [word for word in newest.split() if "T" not in word] == ["3", "append", "2", "1", "1", "0"]
    assert oldest.startswith("0 ")
    (only,) = ams.json("pipeline", "table", "history", "days", "--limit", "1")
    assert (only["version"], only["what"], only["rows"]) == (3, "append", 1)


def test_a_version_is_restored_by_number_or_by_time(ams: Ams, days: Path) -> None:
    ran = ams("pipeline", "table", "restore", "days", "1")

    assert (ran.returncode, ran.stderr) == (0, "days: version 4 has the rows of 1\n")
    assert contents(days) == {(1, MONDAY): 1, (2, TUESDAY): 1}
    then = open_table(str(days), 3).time.isoformat()
    assert ams("pipeline", "table", "restore", "days", then).returncode == 0
    assert len(contents(days)) == 4


def test_files_are_merged_of_all_partitions_or_of_some(ams: Ams, days: Path) -> None:
    ran = ams("pipeline", "table", "merge", "days", "--partition", "day=2024-03-05", "--order", "n")

    assert (ran.returncode, ran.stderr) == (0, "days: 2 files were put together\n")
    assert len(open_table(str(days)).files) == 3
    assert ams("pipeline", "table", "merge", "days").stderr == "days: 2 files were put together\n"
    assert len(contents(days)) == 4


def test_vacuum_lists_and_removes_only_when_it_is_told_to(ams: Ams, days: Path) -> None:
    left = days / "day=2024-03-04" / "batch-left.parquet"
    left.write_bytes(b"x")
    os.utime(left, (0, 0))

    ran = ams("pipeline", "table", "vacuum", "days")
    assert (ran.stdout, ran.stderr) == ("day=2024-03-04/batch-left.parquet\n", "days: 1 files can go: --remove\n")
    assert left.exists()

    assert ams("pipeline", "table", "vacuum", "days", "--remove").stderr == "days: 1 files were removed\n"
    assert not left.exists()
    assert ams("pipeline", "table", "vacuum", "days", "-o", "json").stdout == "[]\n"


def test_a_check_tells_what_is_there_and_ends_with_an_error_for_what_is_damaged(ams: Ams, days: Path) -> None:
    write(table(days), [(9, MONDAY)])

    ran = ams("pipeline", "table", "check", "days")
    assert (ran.returncode, ran.stdout.startswith("4 rows in 4 files, ")) == (0, True)
    assert "days: 1 files of attempts that failed" in ran.stderr

    (days / open_table(str(days)).files[0].path).write_bytes(b"")
    ran = ams("pipeline", "table", "check", "days")
    assert (ran.returncode, len(ran.stdout.splitlines())) == (1, 2)
    assert ran.stderr.splitlines()[-1] == "ams: days: 1 of 4 files are not as its log says"


def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)

    with pytest.raises(Usage, match=r"^deltalake not installed; pip install 'argo-messaging\[tables\]'"):
        commands.history("days")


def test_topics_are_kept_in_a_table(ams: Ams, tmp_path: Path) -> None:
    variables = {"AMS_PROJECT": "kept"}
    ams("projects", "create", "kept")
    for topic in ("plants", "stones"):
        ams("topics", "create", topic, **variables)
        ams("publish", topic, stdin="dry\nwet\n", **variables)

    nowhere = ams("archive", "archive", "plants", "-p", "nowhere")
    first = ams("archive", "archive", "pl*", **variables)
    told = ams.json("archive", "archive", **variables)

    assert re.fullmatch(r"archive: messages 2 topics 1 files 1 seconds \d+\.\d\n", first.stdout)
    assert (nowhere.returncode, nowhere.stdout) == (4, "")
    assert (told["messages"], told["topics"], told["files"]) == (2, 1, 1)
    assert sum(file.rows for file in open_table(str(tmp_path / "archive")).files) == 4
