import json
import stat
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import Ams

GIVEN = {"port": 443, "service_token": "s3cret", "store_host": "store.example"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(GIVEN))
    return tmp_path / "config.json"


def listed(offline: Ams, *arguments: str, **variables: str) -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in offline.json("settings", *arguments, **variables)}


def test_the_settings_are_listed(offline: Ams) -> None:
    rows = listed(offline)

    assert rows["push_allow"]["variable"] == "AMS_PUSH_ALLOW"
    assert rows["push_ca_file"]["flag"] == "--push-ca-file"


def test_they_are_listed_as_they_are_in_effect_but_for_secrets(offline: Ams, tmp_path: Path) -> None:
    (tmp_path / "ams.toml").write_text('port = 443\nhost = "192.0.2.7"\nservice_token = "s3cret"\n')

    rows = listed(offline, "--config", "ams.toml", AMS_HOST="::1")

    assert listed(offline, AMS_HOST="::1", AMS_CONFIG="ams.toml") == rows
    shown = {name: (rows[name]["value"], rows[name]["default"]) for name in ("port", "host", "service_token")}
    assert shown == {"port": ("443", "8080"), "host": ("::1", "127.0.0.1"), "service_token": ("***", "")}


def test_the_reference_s_settings_go_to_stdout_and_notes_to_stderr(offline: Ams, file: Path) -> None:
    code, out, err = offline("settings", "import", "config.json")

    assert code == 0
    assert tomllib.loads(out) == {"host": "0.0.0.0", "port": 443, "service_token": "s3cret"}
    first, second = err.splitlines()
    assert first == "ams: store_host has no counterpart: users, projects and topics are in the data folder"
    assert second.startswith("ams: certificate and certificate_key are not given, ")


def test_or_to_a_new_file_that_only_its_owner_can_read_and_that_is_not_overwritten(offline: Ams, file: Path) -> None:
    made = file.with_name("ams.toml")
    code, *said = offline("settings", "import", "config.json", "--output", "ams.toml")

    assert code == 0
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert tomllib.loads(made.read_text())["port"] == 443
    assert "s3cret" not in "".join(said)

    made.write_text("port = 1\n")
    assert offline("settings", "import", "config.json", "-o", "ams.toml") == (2, "", "ams: ams.toml: File exists\n")
    assert made.read_text() == "port = 1\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"{", "this is no JSON: "),
        (b"\xff", "'utf-8' codec can't decode"),
        (b'{"port": "x"}', "port in the imported settings: 'x' is not a good value"),
    ],
)
def test_what_cannot_be_read_is_one_line(content: bytes | None, reason: str, offline: Ams, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)

    code, out, err = offline("settings", "import", "config.json")

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"ams: config.json: {reason}")
