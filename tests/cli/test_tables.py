import json
import os
import sys
import zipfile
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
    (only,) = json.loads(ams("pipeline", "table", "history", "days", "--limit", "1", "-o", "json").stdout)
    assert (only["version"], only["what"], only["rows"]) == (3, "append", 1)


def test_a_version_is_restored_by_number_or_by_time(ams: Ams, days: Path) -> None:
    ran = ams("pipeline", "table", "restore", "days", "1")

    assert (ran.returncode, ran.stderr) == (0, "days: version 4 has the rows of 1\n")
    assert contents(days) == {(1, MONDAY): 1, (2, TUESDAY): 1}
    then = open_table(str(days), 3).time.isoformat()
    assert ams("pipeline", "table", "restore", "days", then).returncode == 0
    assert len(contents(days)) == 4


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["restore", "days", "yesterday"], 2, "'yesterday' is neither a number nor a time such as 2024-03-05"),
        (["restore", "days", "99"], 5, "has no version 99 (any longer)"),
        (["restore", "days", "2024-03-05"], 5, "has no version of 2024-03-05T00:00:00+00:00 (any longer)"),
        (["merge", "days", "--partition", "day"], 2, "--partition 'day' must look like KEY=VALUE"),
        (["history", "none"], 5, "none is no table: it has no _delta_log"),
        (["vacuum", "none"], 5, "none is no table: it has no _delta_log"),
        (["check", "none"], 5, "none is no table: it has no _delta_log"),
        (["convert", "days"], 5, "days is no table of the version before: it has no _manifest"),
        (["check", "hdfs://names.example/days"], 5, "not on hdfs:"),
    ],
)
def test_what_cannot_be_done_is_one_line(ams: Ams, days: Path, arguments: list[str], code: int, reason: str) -> None:
    ran = ams("pipeline", "table", *arguments)

    assert (ran.returncode, ran.stdout) == (code, "")
    assert reason in ran.stderr.splitlines()[-1]


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


def test_a_table_of_an_earlier_version_is_converted(ams: Ams, tmp_path: Path) -> None:
    with zipfile.ZipFile(Path(__file__).parents[1] / "tables" / "archive_of_before.zip") as file:
        file.extractall(tmp_path)
    assert "`ams pipeline table convert` makes" in ams("pipeline", "table", "history", "archive").stderr

    ran = ams("pipeline", "table", "convert", "archive")

    assert (ran.returncode, ran.stderr) == (
        0,
        "archive: 18 rows of 6 folders are in 4 files now, and are the same\n",
    )
    assert ams("pipeline", "table", "check", "archive").stdout.startswith("18 rows in 4 files")


def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)

    with pytest.raises(Usage, match=r"^deltalake not installed; pip install 'argo-messaging\[tables\]'"):
        commands.history("days")
