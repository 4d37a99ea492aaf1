import json
import stat
import tomllib
from pathlib import Path

import pytest

from tests.support.commands import exit_code_of

GIVEN = {"port": 443, "service_token": "s3cret", "store_host": "store.example"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(GIVEN))
    return "config.json"


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, str]]:
    assert exit_code_of(["settings", "-o", "json", *arguments]) == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)}


def test_the_settings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = listed(capsys)

    assert rows["push_allow"]["variable"] == "AMS_PUSH_ALLOW"
    assert rows["push_ca_file"]["flag"] == "--push-ca-file"


def test_they_are_listed_as_they_are_in_effect_but_for_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ams.toml").write_text('port = 443\nhost = "192.0.2.7"\nservice_token = "s3cret"\n')
    monkeypatch.setenv("AMS_HOST", "::1")

    rows = listed(capsys, "--config", str(tmp_path / "ams.toml"))
    monkeypatch.setenv("AMS_CONFIG", str(tmp_path / "ams.toml"))

    assert listed(capsys) == rows
    shown = {name: (rows[name]["value"], rows[name]["default"]) for name in ("port", "host", "service_token")}
    assert shown == {"port": ("443", "8080"), "host": ("::1", "127.0.0.1"), "service_token": ("***", "")}


def test_settings_that_cannot_be_are_not_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["settings", "--config", "nowhere.toml"]) == 2
    assert capsys.readouterr().err.startswith("ams: settings file nowhere.toml: ")


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
