from pathlib import Path

import pytest

from ams.app.wiring import service
from ams.core.settings import Bytes, Settings
from ams.core.supervisor import Supervisor
from ams.storage.folder import Folder
from tests.app.moving.lines import line, whole, written
from tests.cli.conftest import Ams
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


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """Make a data folder with 20 messages."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "ams-data").write_text("1\n")
    (folder / "token.key").write_text("0" * 64)
    async with open_use_cases(folder) as use_cases:
        await use_cases.publish(20)
    return folder


def damage(data: Path) -> Path:
    """Change a byte of a message; return the file that it is in."""
    (segment,) = (data / "log").glob("*/*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b'"n":"7"') + 6] ^= 1
    segment.write_bytes(content)
    return segment


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

    plain = ams("export", "plain.jsonl", "--data", "data", "--without-secrets")
    assert "plain.jsonl is whole. Named tokens are not in it and have to be made anew;" in plain.stdout
    assert TOKEN not in (tmp_path / "plain.jsonl").read_text()


def test_a_file_is_checked_without_changing_anything(ams: Ams, file: str, tmp_path: Path) -> None:
    ran = ams("import", file, "--check", "--data", "data")

    assert (ran.returncode, ran.stdout) == (0, COUNTS + f"{file} can be imported.\n")
    assert not (tmp_path / "data").exists()


def test_an_installation_goes_through_a_pipe(ams: Ams, file: str) -> None:
    counts = ams.json("import", file, "--data", "one")
    exported = ams("export", "-", "--data", "one")
    imported = ams("import", "-", "--data", "two", stdin=exported.stdout)

    assert counts == {"log": 1, "message": 3, "user": 1, "project": 1, "topic": 1}
    assert exported.stdout.splitlines()[-1].startswith('{"kind":"end"')
    assert "is whole" in exported.stderr
    assert imported.returncode == 0, imported.stderr
    assert ams("export", "-", "--data", "two").stdout.splitlines()[1:] == exported.stdout.splitlines()[1:]


def test_what_cannot_be_used_is_refused_in_one_line(ams: Ams, data: Path, file: str, tmp_path: Path) -> None:
    bad = written(tmp_path / "bad.jsonl", LINES[:-1])
    Folder.take(str(tmp_path / "node")).release()
    (tmp_path / "foreign").mkdir()
    assert ams("import", file, "--data", "full").returncode == 0
    taken = Folder.take(str(tmp_path / "taken"))

    for words, reason in (
        (("import", bad, "--data", "new"), f"{bad}: the last line is missing: the file was cut"),
        (("import", file, "--data", "full"), "there are users or topics already: import into a new installation"),
        (("import", file, "--data", "taken"), "is in use by another process"),
        (("export", "other", "--data", "taken"), "is in use by another process"),
        (("backup", str(data / "b"), "--data", str(data)), f"{data}/b is within the data folder; choose a folder"),
        (("check", "taken"), "data folder taken is in use; stop the service, or check a copy"),
        (("check", "foreign"), "foreign is not a data folder"),
        (("check", "node"), "node holds keys only: what its service keeps is in Kafka and PostgreSQL"),
    ):
        ran = ams(*words)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr.startswith("ams: ")
        assert reason in ran.stderr
        assert ran.stderr.count("\n") == 1
    taken.release()
    assert not (tmp_path / "new").exists()


def test_a_backup_says_what_it_shows_and_that_the_key_is_in_it(ams: Ams, data: Path, tmp_path: Path) -> None:
    ran = ams("backup", str(tmp_path / "b"), "--data", str(data))

    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    assert first.startswith(f"{tmp_path}/b shows 20")
    assert second == "It holds the token key: any person with this file can read all tokens."


def test_a_backup_without_the_key_says_so_and_so_does_its_restore(ams: Ams, data: Path) -> None:
    taken = ams("backup", "b", "--without-key", AMS_DATA=str(data))
    restored = ams("restore", "b", "--data", "new")

    assert taken.stdout.splitlines()[1].startswith("The token key is not in it: keep the key apart")
    assert restored.stdout.splitlines()[1].startswith("The token key is not in it: put token.key there or set AMS_")


def test_programs_are_told_of_a_backup_in_json(ams: Ams, data: Path) -> None:
    taken = ams.json("backup", "b", "--data", str(data))
    restored = ams.json("restore", "b", "--data", "new")

    assert taken.keys() == {"folder", "taken", "files", "bytes", "token_key"}
    assert taken | {"folder": "new"} == restored


def test_a_sound_folder_is_counted_and_damage_is_named_by_a_check_and_by_a_restore(ams: Ams, data: Path) -> None:
    report = ams.json("check", "data")
    segment = damage(data)
    checked = ams("check", "data")
    ams("backup", "b", "--data", "data")
    restored = ams("restore", "b", "--data", "new")

    assert (report["messages"], report["topics"], report["problems"]) == (20, 1, [])
    assert checked.returncode == 1
    assert f"damaged    {segment} at " in checked.stdout
    assert restored.returncode == 1
    assert "was restored, but what was backed up was damaged already" in restored.stderr

    (data / "cursors.db").write_bytes(b"no database at all" * 100)
    checked = ams("check", "data")
    assert checked.returncode == 1
    assert "cursors.db: file is not a database" in checked.stdout


@pytest.fixture
async def started(tmp_path: Path) -> Path:
    settings = Settings(data=str(tmp_path / "data"), min_free_bytes=Bytes(0), reserve_bytes=Bytes(0))
    async with service(settings, Supervisor()):
        return tmp_path / "data"


def test_a_rotation_says_where_the_key_is_and_what_old_backups_need(ams: Ams, started: Path) -> None:
    ran = ams("admin", "rotate-key", "--data", str(started))
    told = ams.json("admin", "rotate-key", AMS_DATA=str(started))
    refused = ams("admin", "rotate-key", "--data", str(started), AMS_TOKEN_KEY="ab" * 32)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (
        "Encrypted anew: 2 tokens; they stay valid.\n"
        f"The new key is in {started}/token.key. Backups taken before need the old key.\n"
    )
    assert told == {"tokens": 2, "file": f"{started}/token.key"}
    assert refused.returncode == 2
    assert refused.stderr == (
        "ams: AMS_TOKEN_KEY is set, so the key is yours to keep: give the new one as AMS_NEW_TOKEN_KEY\n"
    )
