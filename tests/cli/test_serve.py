from pathlib import Path

import pytest

from tests.cli.conftest import exit_code_of


def test_settings_that_cannot_be_are_one_line_and_end_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["serve", "--port", "many"]) == 1
    assert capsys.readouterr().err.startswith("ams: --port: 'many' is not a good value; ")


def test_a_folder_of_somebody_else_is_one_line_and_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "holiday.txt").write_text("sand")

    assert exit_code_of(["serve", "--data", str(tmp_path), "--port", "0", "--ops-port", "0"]) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ams: ")]
    assert len(said) == 1
    assert str(tmp_path) in said[0]


def test_an_unknown_option_is_a_mistake_of_usage() -> None:
    assert exit_code_of(["serve", "--nonsense"]) == 2
