import os
import sys
from pathlib import Path

import pytest

from ams.app.moving import files
from ams.app.moving.files import STANDARD, lines, reading, writing
from ams.core.errors import Unusable


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str):
    path = str(tmp_path / name)
    with writing(path) as file:
        file.write(b'{"kind":"header","format":1}\n')

    with reading(path) as file:
        assert [number for number, _ in lines(file, path)] == [1]
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(Unusable, match="File exists"), writing(path):
        pass


@pytest.mark.parametrize("error", [ValueError("x"), OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_of_what_was_not_written_to_its_end_nothing_is_left(tmp_path: Path, error: BaseException):
    path = tmp_path / "file.gz"

    def fail() -> None:
        with writing(str(path)) as file:
            file.write(b"half")
            raise error

    with pytest.raises((Unusable, ValueError, KeyboardInterrupt)) as raised:
        fail()

    assert not path.exists()
    assert not isinstance(error, OSError) or "nothing is left of it" in str(raised.value)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(Unusable, match="No such file"), writing(str(tmp_path / "nowhere" / "file")):
        pass


def test_a_reader_of_stdout_that_left_is_told(monkeypatch: pytest.MonkeyPatch):
    end, start = os.pipe()
    os.close(end)
    with os.fdopen(start, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(Unusable, match="the export is not whole"), writing(STANDARD) as file:
            file.write(b"x" * 1_000_000)
        monkeypatch.undo()
        stdout.buffer.raw.close()


def test_a_line_that_never_ends_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "MAX_LINE", 100)
    path = tmp_path / "file"
    path.write_bytes(b"[" * 1000)

    with reading(str(path)) as file, pytest.raises(Unusable, match="line 1: longer than a line can be"):
        list(lines(file, str(path)))
