import json
from pathlib import Path

import pytest

from ams.cli.command import Session
from ams.cli.output import Format
from ams.cli.pipeline import hand_over
from ams.client import Client
from ams.client.bearer import BearerFile
from ams.pipeline.checkpoint import Identity, Standing, locked, write
from ams.pipeline.jobs import JOBS
from tests.cli.conftest import Ams

GOOD = """\
source: {topic: walls}
steps:
  - parse: {format: json, fields: {site: string, wall: double}}
  - filter: wall > 10
sink: {table: walls}
"""


@pytest.fixture
def walls(tmp_path: Path) -> str:
    (tmp_path / "walls.yaml").write_text(GOOD)
    return "walls.yaml"


def test_a_definition_is_checked_without_starting_anything(ams: Ams, walls: str) -> None:
    ran = ams("pipeline", "check", walls)

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "walls.yaml: walls can be run\n")


@pytest.mark.parametrize("command", ["check", "run", "show"])
def test_every_mistake_is_a_line_before_the_error(ams: Ams, tmp_path: Path, command: str) -> None:
    (tmp_path / "wrong.yaml").write_text(GOOD.replace("wall > 10", "wal > 10").replace("topic:", "subject:"))

    ran = ams("pipeline", command, "wrong.yaml")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines() == [
        "wrong.yaml:1: unknown key 'subject'; there are topic, topics, subscription, from, max_messages, partitions,"
        " fail_on_data_loss",
        "wrong.yaml:1: one of topic, topics, subscription must be said, and only one",
        "wrong.yaml:4:13: no column 'wal'; did you mean wall?",
        "ams: wrong.yaml: 3 mistakes; nothing was started",
    ]


def test_a_folder_of_another_definition_or_of_another_run_is_refused(ams: Ams, walls: str, tmp_path: Path) -> None:
    work = tmp_path / "ams-pipeline" / "walls"
    with locked(work):
        busy = ams("pipeline", "run", walls)
    write(work / "definition.json", Identity(name="walls", project="other", rows={}, options={}))
    (work / "tables").mkdir()
    other = ams("pipeline", "run", walls)

    assert (busy.returncode, other.returncode) == (5, 5)
    assert busy.stderr.startswith(f"ams: another run works in {work}; wait for its end")
    assert other.stderr == (
        f"ams: {work} was made by another definition (project changed): give another folder with --work to begin anew\n"
    )


def test_it_is_shown_what_would_be_done_and_never_the_token(
    ams: Ams, walls: str, environment: dict[str, str], tmp_path: Path
) -> None:
    work = tmp_path / "w"
    work.mkdir()
    write(work / "progress.json", Standing(batch=3, time="2024-03-05T10:20:30Z", messages=7000, lag=2))

    ran = ams("pipeline", "show", walls, "--work", "w")
    as_json = ams.json("pipeline", "show", "archive", "--set", "topics=[jobs]")

    assert [" ".join(line.split()) for line in ran.stdout.splitlines()] == [
        "name walls",
        f"service {environment['AMS_ENDPOINT']}",
        f"project {environment['AMS_PROJECT']}",
        f"work {work}",
        "source topic walls",
        "parse format: json, fields: site: string, wall: double",
        "filter wall > 10",
        "sink table: walls",
        "last batch 3, at 2024-03-05T10:20:30Z",
        "messages 7,000",
        "broken 0",
        "behind 2",
    ]
    assert environment["AMS_TOKEN"] not in ran.stdout + json.dumps(as_json)
    assert as_json["name"] == "archive"


def test_jobs_and_their_options_are_listed(ams: Ams) -> None:
    jobs = ams.json("pipeline", "list")

    assert [each["job"] for each in jobs] == sorted(JOBS)
    for name in JOBS:
        options = ams.json("pipeline", "list", name)
        assert all(each["meaning"] for each in options), f"an option of {name} says nothing of itself"
    table = ams("pipeline", "list").stdout
    assert table.startswith("JOB")


def test_what_is_not_installed_is_named(ams: Ams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    ran = ams("pipeline", "list")

    assert ran.returncode == 2
    assert ran.stderr.endswith("not installed; pip install 'argo-messaging[spark]' brings all it needs\n")


def test_spark_asks_as_the_command_does_also_by_a_bearer_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    left = {"AMS_TOKEN": "other", "AMS_BEARER_TOKEN": "other", "AMS_PROFILE": "site", "HOME": "/"}
    file = BearerFile(str(tmp_path / "token"))

    for token, bearer, said in (
        ("mine", None, {"AMS_TOKEN": "mine"}),
        ("", "xyz", {"AMS_BEARER_TOKEN": "xyz"}),
        ("", file, {"AMS_BEARER_TOKEN_FILE": file.path}),
    ):
        environment = dict(left)
        with Client("http://localhost:1", token, bearer=bearer) as client:
            hand_over(Session(client, None, Format.TABLE, token, None, bearer=bearer), environment)
        assert environment == {"HOME": "/", "AMS_ENDPOINT": "http://localhost:1"} | said
