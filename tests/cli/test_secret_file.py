"""Files for secrets that are told once."""

import stat
from pathlib import Path

import pytest

from ams.cli.exits import Usage
from ams.cli.secret_file import check_place, new_file, secret_file


def test_a_secret_is_for_its_owner_alone_and_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)

    with secret_file(str(path)) as keep:
        keep("new")

    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_was_there_stays_when_no_secret_came(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")

    with pytest.raises(RuntimeError), secret_file(str(path)):
        raise RuntimeError

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_where_no_file_can_be_is_said_before(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="nowhere/token: No such file"):
        check_place(str(tmp_path / "nowhere" / "token"))
    with pytest.raises(Usage, match="is a folder"):
        check_place(str(tmp_path))


def test_a_bare_name_is_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    with secret_file("token") as keep:
        keep("new")

    assert (tmp_path / "token").read_text() == "new\n"


def test_a_new_file_is_for_its_owner_alone_and_takes_the_place_of_none(tmp_path: Path) -> None:
    path = tmp_path / "key.json"

    with new_file(str(path)) as keep:
        keep("secret")

    assert path.read_text() == "secret\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(Usage, match="key.json: File exists"), new_file(str(path)) as keep:
        keep("another")
    with pytest.raises(Usage, match="nowhere/key.json: No such file"), new_file(str(tmp_path / "nowhere" / "key.json")):
        raise AssertionError
    assert path.read_text() == "secret\n"


def test_no_new_file_is_there_when_no_secret_came(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), new_file(str(tmp_path / "key.json")):
        raise RuntimeError

    assert list(tmp_path.iterdir()) == []
