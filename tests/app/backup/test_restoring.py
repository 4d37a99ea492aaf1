import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ams.app.backup import restore, take
from ams.core.errors import Damaged, Unusable
from ams.storage.folder import RESTORING, Folder
from tests.support.engines import open_engines
from tests.support.use_cases import UseCases
from tests.support.waiting import wait_until


@pytest.fixture
def backup(data: Path, tmp_path: Path) -> Path:
    take(str(data), str(tmp_path / "b"))
    return tmp_path / "b"


def manifest_with(backup: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = backup / "backup.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


async def test_a_restored_folder_goes_on_where_the_backup_was_taken(backup: Path, tmp_path: Path) -> None:
    restored = restore(str(backup), str(tmp_path / "new"))

    assert restored.report.problems == []
    assert restored.report.log.messages == 20
    async with open_engines(tmp_path / "new") as engines:
        use_cases = UseCases(engines, await engines.caller())
        assert await use_cases.publish(1) == 20


def test_a_mounted_empty_folder_will_do(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    restore(str(backup), str(tmp_path / "new"))
    Folder.take(str(tmp_path / "new")).release()


def test_a_folder_that_holds_something_is_refused_and_left_alone(backup: Path, data: Path) -> None:
    before = sorted(os.listdir(data))

    with pytest.raises(Unusable, match="is not empty; name a new folder with --data"):
        restore(str(backup), str(data))
    assert sorted(os.listdir(data)) == before


def test_a_folder_in_use_is_refused(backup: Path, tmp_path: Path) -> None:
    taken = Folder.take(str(tmp_path / "new"))
    try:
        with pytest.raises(Unusable, match="in use by another process"):
            restore(str(backup), str(tmp_path / "new"))
    finally:
        taken.release()


@pytest.mark.parametrize(
    ("spoil", "name", "said"),
    [(damage, "registry.db", "not what was backed up"), (damage, "cursors.db", "not what was backed up"),
     (damage, "token.key", "not what was backed up"), (os.unlink, "cursors.db", "No such file")],
)  # fmt: skip
def test_what_changed_or_is_missing_is_found_and_no_service_takes_the_folder(
    backup: Path, tmp_path: Path, spoil: Callable[[Path], None], name: str, said: str
) -> None:
    spoil(backup / name)

    with pytest.raises((Damaged, Unusable), match=said):
        restore(str(backup), str(tmp_path / "new"))
    assert os.listdir(tmp_path / "new") == [RESTORING]
    with pytest.raises(Unusable, match="holds a restore that was not finished; restore into it again, or remove it"):
        Folder.take(str(tmp_path / "new"))


def test_a_folder_without_a_whole_manifest_is_no_backup(backup: Path, data: Path, tmp_path: Path) -> None:
    (backup / "backup.json").write_text('{"format":1,')

    for folder, said in ((data, ""), (backup, " cannot be read")):
        with pytest.raises(Unusable, match=rf"is not a whole backup: backup\.json{said}"):
            restore(str(folder), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("field", "value"), [("format", 2), ("layout", "2")])
def test_a_backup_of_a_newer_program_is_refused(backup: Path, tmp_path: Path, field: str, value: object) -> None:
    manifest_with(backup, lambda manifest: manifest.update({field: value}))
    with pytest.raises(Unusable, match="upgrade it"):
        restore(str(backup), str(tmp_path / "new"))


@pytest.mark.parametrize("name", ["../elsewhere", "/etc/elsewhere", "log/../../elsewhere"])
def test_no_name_leads_out_of_the_folder(backup: Path, tmp_path: Path, name: str) -> None:
    manifest_with(backup, lambda manifest: manifest["files"].append({"name": name, "bytes": 0, "sha256": ""}))
    with pytest.raises(Unusable, match=r"backup\.json names"):
        restore(str(backup), str(tmp_path / "new"))


@pytest.mark.long
def test_a_restore_that_was_killed_leaves_no_data_folder(backup: Path, tmp_path: Path) -> None:
    (backup / "token.key").unlink()
    os.mkfifo(backup / "token.key")  # nobody writes, so that the restore gets no further
    program = "import sys; from ams.app.backup import restore; restore(*sys.argv[1:])"

    with subprocess.Popen([sys.executable, "-c", program, str(backup), str(tmp_path / "new")]) as process:
        wait_until((tmp_path / "new" / RESTORING).exists, process=process)
        process.kill()

    with pytest.raises(Unusable, match="holds a restore that was not finished"):
        Folder.take(str(tmp_path / "new"))


def test_a_restore_is_done_again_over_what_another_left(backup: Path, data: Path, tmp_path: Path) -> None:
    damage(backup / "registry.db")
    with pytest.raises(Damaged):
        restore(str(backup), str(tmp_path / "new"))
    (tmp_path / "new" / "leftover").write_text("of one that was killed")
    take(str(data), str(tmp_path / "another"))

    restore(str(tmp_path / "another"), str(tmp_path / "new"))

    Folder.take(str(tmp_path / "new")).release()
    assert not {RESTORING, "leftover"} & set(os.listdir(tmp_path / "new"))
