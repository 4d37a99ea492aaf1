import json
import stat
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import exit_code_of

GIVEN = {"port": 443, "service_token": "s3cret", "store_host": "store.example"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(GIVEN))
    return "config.json"


def test_the_settings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["settings", "-o", "json"]) == 0

    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["push_allow"]["variable"] == "AMS_PUSH_ALLOW"
    assert rows["push_ca_file"]["flag"] == "--push-ca-file"


def test_the_reference_s_settings_go_to_stdout_and_notes_to_stderr(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(["settings", "import", file]) == 0

    said = capsys.readouterr()
    assert tomllib.loads(said.out) == {"host": "0.0.0.0", "port": 443, "service_token": "s3cret"}
    first, second = said.err.splitlines()
    assert first == "ams: store_host has no counterpart: users, projects and topics are in the data folder"
    assert second.startswith("ams: certificate and certificate_key are not given, ")


def test_or_to_a_new_file_that_only_its_owner_can_read(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["settings", "import", file, "--output", "ams.toml"]) == 0

    assert stat.S_IMODE(Path("ams.toml").stat().st_mode) == 0o600
    assert tomllib.loads(Path("ams.toml").read_text())["port"] == 443
    assert "s3cret" not in "".join(capsys.readouterr())


def test_a_file_that_is_there_is_not_overwritten(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("ams.toml").write_text("port = 1\n")

    assert exit_code_of(["settings", "import", file, "-o", "ams.toml"]) == 2
    assert Path("ams.toml").read_text() == "port = 1\n"
    assert capsys.readouterr().err == "ams: ams.toml: File exists\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "ams: config.json: No such file or directory"),
        (b"{", "ams: config.json: this is no JSON: "),
        (b"\xff", "ams: config.json: 'utf-8' codec can't decode"),
        (b'{"port": "x"}', "ams: config.json: port in the imported settings: 'x' is not a good value"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(
    content: bytes | None, said: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is None:
        Path(file).unlink()
    else:
        Path(file).write_bytes(content)

    assert exit_code_of(["settings", "import", file]) == 2

    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(said)
    assert told.err.count("\n") == 1
