import json
from pathlib import Path

import pytest

from ams.storage.folder import Folder
from tests.app.moving.lines import line, whole, written
from tests.cli.conftest import Ams

TOKEN = "a-token-nobody-may-see"
LINES = whole(
    line("log", project="P", topic="T"),
    *(line("message", offset=number, time=1, data="") for number in range(3)),
    line("user", name="u", token=TOKEN),
    line("project", name="P"),
    line("topic", project="P", name="T"),
)
COUNTS = "log            1\nmessage        3\nuser           1\nproject        1\ntopic          1\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    return written(tmp_path / "export.jsonl", LINES)


def test_an_export_is_imported_and_exported_again(ams: Ams, file: str, tmp_path: Path) -> None:
    imported = ams("import", file, "--data", "data")
    exported = ams("export", "again.jsonl.gz", "--data", "data")

    assert (imported.returncode, exported.returncode) == (0, 0), imported.stderr + exported.stderr
    assert imported.stdout == COUNTS + "All of it is there; start the service.\n"
    assert exported.stdout.endswith(
        "again.jsonl.gz is whole. Every token stands in it in clear: guard it, and remove it afterwards.\n"
    )
    assert (tmp_path / "again.jsonl.gz").stat().st_mode & 0o777 == 0o600
    assert TOKEN not in imported.stdout + imported.stderr + exported.stdout + exported.stderr


def test_a_file_is_checked_without_changing_anything(ams: Ams, file: str, tmp_path: Path) -> None:
    ran = ams("import", file, "--check", "--data", "data")

    assert (ran.returncode, ran.stdout) == (0, COUNTS + f"{file} can be imported.\n")
    assert not (tmp_path / "data").exists()


def test_a_bad_file_is_refused_before_anything_is_made(ams: Ams, tmp_path: Path) -> None:
    path = written(tmp_path / "bad.jsonl", LINES[:-1])

    ran = ams("import", path, "--data", "data")

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"ams: {path}: the last line is missing: the file was cut\n"
    assert not (tmp_path / "data").exists()


def test_programs_are_answered_in_json(ams: Ams, file: str) -> None:
    ran = ams("import", file, "--data", "data", "-o", "json")

    assert json.loads(ran.stdout) == {"log": 1, "message": 3, "user": 1, "project": 1, "topic": 1}


def test_an_installation_goes_through_a_pipe(ams: Ams, file: str, tmp_path: Path) -> None:
    assert ams("import", file, "--data", "one").returncode == 0
    exported = ams("export", "-", "--data", "one")
    assert exported.stdout.splitlines()[-1].startswith('{"kind":"end"')
    assert "is whole" in exported.stderr

    imported = ams("import", "-", "--data", "two", stdin=exported.stdout)

    assert imported.returncode == 0, imported.stderr
    assert ams("export", "-", "--data", "two").stdout.splitlines()[1:] == exported.stdout.splitlines()[1:]


def test_without_secrets_nothing_is_said_of_them(ams: Ams, file: str, tmp_path: Path) -> None:
    assert ams("import", file, "--data", "data").returncode == 0

    ran = ams("export", "plain.jsonl", "--data", "data", "--without-secrets")

    assert "plain.jsonl is whole. Named tokens are not in it and have to be made anew;" in ran.stdout
    assert TOKEN not in (tmp_path / "plain.jsonl").read_text()


def test_what_is_no_data_folder_is_not_made_one(ams: Ams, tmp_path: Path) -> None:
    ran = ams("export", "file", "--data", "nothing")

    assert (ran.returncode, ran.stderr) == (1, "ams: nothing is not a data folder\n")
    assert not (tmp_path / "nothing").exists()


def test_a_folder_in_use_is_left_alone(ams: Ams, file: str, tmp_path: Path) -> None:
    taken = Folder.take(str(tmp_path / "data"))
    try:
        for command in (("export", "other"), ("import", file)):
            ran = ams(*command, "--data", "data")
            assert ran.returncode == 1
            assert "is in use by another process" in ran.stderr
    finally:
        taken.release()


def test_a_folder_with_something_in_it_is_not_imported_into(ams: Ams, file: str) -> None:
    assert ams("import", file, "--data", "data").returncode == 0

    ran = ams("import", file, "--data", "data")

    assert ran.returncode == 1
    assert ran.stderr == "ams: there are users or topics already: import into a new installation\n"
