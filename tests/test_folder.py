import os
from pathlib import Path

import pytest

from ams.errors import Unusable
from ams.folder import Folder, is_ours


def test_a_new_folder_is_made_for_the_owner_only(tmp_path: Path) -> None:
    folder = Folder.take(str(tmp_path / "data"))

    assert os.stat(folder.path).st_mode & 0o777 == 0o700
    assert is_ours(folder.path)
    folder.release()


def test_a_folder_is_taken_again_after_it_was_released(tmp_path: Path) -> None:
    Folder.take(str(tmp_path / "data")).release()

    Folder.take(str(tmp_path / "data")).release()


def test_a_folder_in_use_is_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = Folder.take(str(tmp_path / "data"))

    with pytest.raises(Unusable, match="in use by another process; stop it or choose another with --data"):
        Folder.take(str(tmp_path / "data"))
    folder.release()


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")

    with pytest.raises(Unusable, match=r"holds other files \(letters.txt"):
        Folder.take(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["letters.txt"]


def test_a_folder_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ams-data").write_text("99\n")

    with pytest.raises(Unusable, match="upgrade"):
        Folder.take(str(tmp_path))


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")

    with pytest.raises(Unusable, match="choose another with --data"):
        Folder.take(str(tmp_path / "data"))


def test_a_first_start_that_was_cut_short_does_not_make_the_folder_foreign(tmp_path: Path) -> None:
    (tmp_path / "ams-data.new").write_text("")
    (tmp_path / "lock").write_text("")

    Folder.take(str(tmp_path)).release()

    assert is_ours(str(tmp_path))
