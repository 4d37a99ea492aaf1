import json
from pathlib import Path

import pytest

from ams.app.wiring import service
from ams.core.settings import Bytes, Settings
from ams.core.supervisor import Supervisor
from ams.storage.folder import Folder
from tests.app.moving.lines import line, whole, written
from tests.cli.conftest import Ams
from tests.support.commands import exit_code_of
from tests.support.use_cases import open_use_cases

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


def test_programs_are_told_of_an_import_in_json(ams: Ams, file: str) -> None:
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


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "ams-data").write_text("1\n")
    (folder / "token.key").write_text("0" * 64)
    async with open_use_cases(folder) as use_cases:
        await use_cases.publish(20)
    return folder


def test_a_backup_says_what_it_shows_and_that_the_key_is_in_it(ams: Ams, data: Path, tmp_path: Path) -> None:
    ran = ams("backup", str(tmp_path / "b"), "--data", str(data))

    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    assert first.startswith(f"{tmp_path}/b shows 20")
    assert second == "It holds the token key: any person with this file can read all tokens."


def test_a_backup_without_the_key_says_so_and_so_does_its_restore(ams: Ams, data: Path, tmp_path: Path) -> None:
    taken = ams("backup", str(tmp_path / "b"), "--without-key", AMS_DATA=str(data))
    restored = ams("restore", str(tmp_path / "b"), "--data", str(tmp_path / "new"))

    assert taken.stdout.splitlines()[1].startswith("The token key is not in it: keep the key apart")
    assert restored.stdout.splitlines()[1].startswith("The token key is not in it: put token.key there or set AMS_")


def test_programs_are_told_of_a_backup_in_json(ams: Ams, data: Path, tmp_path: Path) -> None:
    taken = json.loads(ams("backup", str(tmp_path / "b"), "--data", str(data), "-o", "json").stdout)
    restored = json.loads(ams("restore", str(tmp_path / "b"), "--data", str(tmp_path / "new"), "-o", "json").stdout)

    assert taken.keys() == {"folder", "taken", "files", "bytes", "token_key"}
    assert taken | {"folder": str(tmp_path / "new")} == restored


def test_a_refusal_is_one_line_and_exit_code_1(ams: Ams, data: Path, tmp_path: Path) -> None:
    ran = ams("backup", str(data / "b"), "--data", str(data))

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"ams: {data}/b is within the data folder; choose a folder elsewhere\n"


def test_damage_in_what_was_backed_up_is_told_by_the_restore(ams: Ams, data: Path, tmp_path: Path) -> None:
    (segment,) = (data / "log").glob("*/*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b'"n":"7"') + 6] ^= 1
    segment.write_bytes(content)
    ams("backup", str(tmp_path / "b"), "--data", str(data))

    ran = ams("restore", str(tmp_path / "b"), "--data", str(tmp_path / "new"))

    assert ran.returncode == 1
    assert "was restored, but what was backed up was damaged already" in ran.stderr


def test_a_restore_names_its_folder(ams: Ams, tmp_path: Path) -> None:
    assert ams("restore", str(tmp_path / "b")).returncode == 2


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    (tmp_path / "ams-data").write_text("1\n")
    async with open_use_cases(tmp_path) as use_cases:
        await use_cases.publish(20)
    return tmp_path


def checked(folder: Path, *flags: str) -> int:
    return exit_code_of(["check", str(folder), *flags])


async def test_a_sound_folder_is_counted_and_ends_with_0(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(folder, "-o", "json") == 0

    report = json.loads(capsys.readouterr().out)
    assert (report["messages"], report["topics"], report["problems"]) == (20, 1, [])


async def test_damage_is_named_with_file_and_position_and_ends_with_1(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = (folder / "log").glob("*/*.log")
    data = bytearray(segment.read_bytes())
    at = data.index(b'"n":"7"')
    data[at + 6] ^= 1
    segment.write_bytes(data)

    assert checked(folder) == 1
    assert f"damaged    {segment} at " in capsys.readouterr().out


async def test_a_damaged_database_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cursors.db").write_bytes(b"no database at all" * 100)

    assert checked(folder) == 1
    assert "cursors.db: file is not a database" in capsys.readouterr().out


def test_a_foreign_folder_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path) == 1
    assert capsys.readouterr().err == f"ams: {tmp_path} is not a data folder\n"


def test_a_folder_of_a_node_that_keeps_nothing_here_is_told_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Folder.take(str(tmp_path)).release()

    assert checked(tmp_path) == 1
    assert "holds keys only: what its service keeps is in Kafka and PostgreSQL" in capsys.readouterr().err


async def test_a_folder_in_use_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = Folder.take(str(folder))
    try:
        assert checked(folder) == 1
    finally:
        taken.release()
    assert "is in use" in capsys.readouterr().err


@pytest.fixture
async def started(tmp_path: Path) -> Path:
    settings = Settings(data=str(tmp_path / "data"), min_free_bytes=Bytes(0), reserve_bytes=Bytes(0))
    async with service(settings, Supervisor()):
        return tmp_path / "data"


def test_a_rotation_says_where_the_key_is_and_what_old_backups_need(ams: Ams, started: Path) -> None:
    ran = ams("admin", "rotate-key", "--data", str(started))

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (
        "Encrypted anew: 2 tokens; they stay valid.\n"
        f"The new key is in {started}/token.key. Backups taken before need the old key.\n"
    )


def test_programs_are_told_of_a_rotation_in_json(ams: Ams, started: Path) -> None:
    ran = ams("admin", "rotate-key", "-o", "json", AMS_DATA=str(started))

    assert json.loads(ran.stdout) == {"tokens": 2, "file": f"{started}/token.key"}


def test_a_key_of_the_operators_own_is_not_guessed_at(ams: Ams, started: Path) -> None:
    ran = ams("admin", "rotate-key", "--data", str(started), AMS_TOKEN_KEY="ab" * 32)

    assert ran.returncode == 2
    assert ran.stderr == (
        "ams: AMS_TOKEN_KEY is set, so the key is yours to keep: give the new one as AMS_NEW_TOKEN_KEY\n"
    )
