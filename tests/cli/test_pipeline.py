"""`ams pipeline`: definitions, plans, and the tables that pipelines write."""

import json
import os
import re
from pathlib import Path

import pytest

from ams.cli.command import Session
from ams.cli.main import COMMANDS
from ams.cli.output import Format
from ams.cli.pipeline import hand_over
from ams.client.bearer import BearerFile
from ams.client.connection import ConnectionSettings
from ams.pipeline import checkpoint
from ams.pipeline.checkpoint import Identity, RunPosition
from ams.tables.table import open_table
from demo.pipeline.samples.__main__ import ENTRY, NAME
from tests.cli.conftest import Ams
from tests.tables.making import MONDAY, TUESDAY, append, contents, table, write

WALLS = '''\
from pyspark_ams.jobs import Run, job


@job
def walls(run: Run) -> None:
    """Look at walls."""
    run.stream(run.topic("walls"), lambda messages: messages.show())
'''


@pytest.fixture
def walls(tmp_path: Path) -> str:
    (tmp_path / "walls.py").write_text(WALLS)
    return "walls.py"


def test_every_mistake_of_a_file_is_a_line_before_the_error(ams: Ams, walls: str, tmp_path: Path) -> None:
    assert ams("pipeline", "check", walls) == (0, "", "walls.py: walls can be run\n")
    (tmp_path / "wrong.yaml").write_text("job: archive\noptions:\n  merge: perhaps\n  colour: red\n")

    for command in ("check", "run", "show"):
        ran = ams("pipeline", command, "wrong.yaml")
        first, second, last = ran.stderr.splitlines()
        assert (ran.returncode, ran.stdout) == (2, "")
        assert first == "wrong.yaml:3: option merge: Expected bool, got str"
        assert second.startswith("wrong.yaml:4: option colour: there is no such option; there are ")
        assert last == "ams: wrong.yaml: 2 mistakes; nothing was started"


def test_a_folder_of_another_job_or_of_another_run_is_refused(ams: Ams, walls: str, tmp_path: Path) -> None:
    work = tmp_path / "ams-pipeline" / "walls"
    with checkpoint.lock_work_folder(work):
        busy = ams("pipeline", "run", walls)
    checkpoint.write(work / "job.json", Identity(name="walls", project="other", rows={}, options={}))
    (work / "tables").mkdir()
    other = ams("pipeline", "run", walls)

    assert (busy.returncode, other.returncode) == (5, 5)
    assert busy.stderr.startswith(f"ams: another run works in {work}; wait for its end")
    assert other.stderr == (
        f"ams: {work} was made by another job (project changed): give another folder with --work to begin anew\n"
    )


def test_plans_are_shown_without_the_token(ams: Ams, walls: str, environment: dict[str, str], tmp_path: Path) -> None:
    work = tmp_path / "w"
    work.mkdir()
    checkpoint.write(work / "progress.json", RunPosition(batch=3, time="2024-03-05T10:20:30Z", messages=7000, lag=2))

    ran = ams("pipeline", "show", walls, "--work", "w")
    as_json = ams.json("pipeline", "show", "archive", "--set", "topics=[jobs]")

    shown = {" ".join(line.split()) for line in ran.stdout.splitlines()}
    assert shown >= {
        f"service {environment['AMS_ENDPOINT']}", f"work {work}", "job walls: Look at walls",
        "last batch 3, at 2024-03-05T10:20:30Z", "messages 7,000", "behind 2",
    }  # fmt: skip
    assert environment["AMS_TOKEN"] not in ran.stdout + json.dumps(as_json)
    assert as_json["name"] == "archive"


def test_spark_asks_as_the_command_does_also_by_a_bearer_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    left = {"AMS_TOKEN": "other", "AMS_BEARER_TOKEN": "other", "AMS_PROFILE": "site", "HOME": "/"}
    file = BearerFile(str(tmp_path / "token"))

    for token, bearer, said in (("mine", None, {"AMS_TOKEN": "mine"}), ("", "xyz", {"AMS_BEARER_TOKEN": "xyz"}),
                                ("", file, {"AMS_BEARER_TOKEN_FILE": file.path})):  # fmt: skip
        environment = dict(left)
        at = ConnectionSettings("http://localhost:1", token, None, None, bearer)
        with at.client() as client:
            hand_over(Session(client, at, Format.TABLE), environment)
        assert environment == {"HOME": "/", "AMS_ENDPOINT": "http://localhost:1"} | said


@pytest.fixture
def days(tmp_path: Path) -> Path:
    root = tmp_path / "days"
    append(table(root), 0, [(1, MONDAY), (2, TUESDAY)])
    append(table(root), 1, [(3, MONDAY)])
    append(table(root), 2, [(4, TUESDAY)])
    return root


def test_the_history_is_a_line_for_each_version(ams: Ams, days: Path) -> None:
    ran = ams("pipeline", "table", "history", "days")

    assert ran.returncode == 0
    _, newest, *_, oldest = ran.stdout.splitlines()
    assert [word for word in newest.split() if "T" not in word] == ["3", "append", "2", "1", "1", "0"]
    assert oldest.startswith("0 ")
    (only,) = ams.json("pipeline", "table", "history", "days", "--limit", "1")
    assert (only["version"], only["what"], only["rows"]) == (3, "append", 1)


def test_a_version_is_restored_by_number_or_by_time(ams: Ams, days: Path) -> None:
    ran = ams("pipeline", "table", "restore", "days", "1")

    assert (ran.returncode, ran.stderr) == (0, "days: version 4 has the rows of 1\n")
    assert contents(days) == {(1, MONDAY): 1, (2, TUESDAY): 1}
    then = ams.json("pipeline", "table", "history", "days")[1]["time"]
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


def test_a_made_up_day_is_published(ams: Ams, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, NAME, ENTRY)

    published = ams.json("sample", "alarms", "--day", "2024-03-05")

    for topic, count in published.items():
        assert ams.json("topics", "offsets", topic)["max"] == count > 0
    wrong = ams("sample", "alarms", "--size", "moons=3")
    assert wrong == (2, "", "ams: option --size: alarms has no 'moons'; there are sites, outages\n")
