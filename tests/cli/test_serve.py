"""`ams serve` and `ams push` as they begin."""

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Ams

PORTS = ("--port", "0", "--ops-port", "0")


@pytest.fixture(autouse=True)
def _as_logs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the logs of this process as they are: other tests read them."""
    monkeypatch.setattr("ams.core.observing.configure_logs", lambda *_: None)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--port", "many"], "--port: 'many' is not a good value; "),
        (["--config", "nowhere.toml"], "settings file nowhere.toml: "),
        (["--roles-file", "nowhere.toml"], "roles file nowhere.toml: "),
        (["--cert", "nowhere.pem", "--key", "nowhere.key"], "certificate nowhere.pem with key nowhere.key: "),
        (["--push-enabled", "--push-ca-file", "nowhere.pem"], "push_ca_file nowhere.pem: "),
    ],
)
def test_settings_and_files_of_no_use_are_one_line_and_a_mistake_of_usage(
    offline: Ams, arguments: list[str], reason: str
) -> None:
    code, _, err = offline("serve", "--data", "data", *PORTS, "--min-free-bytes", "0", *arguments)

    [said] = [line for line in err.splitlines() if line.startswith("ams: ")]
    assert code == 2
    assert said.startswith(f"ams: {reason}")


def test_a_folder_of_somebody_else_is_one_line_and_ends_with_1(offline: Ams, tmp_path: Path) -> None:
    (tmp_path / "holiday.txt").write_text("sand")

    code, _, err = offline("serve", "--data", str(tmp_path), *PORTS)

    [said] = [line for line in err.splitlines() if line.startswith("ams: ")]
    assert code == 1
    assert str(tmp_path) in said


def test_the_help_shows_a_default_only_where_there_is_one(offline: Ams) -> None:
    code, out, _ = offline("serve", "--help")

    shown = " ".join(out.split())
    assert code == 0
    assert "[AMS_PUBSUB_PORT]" in shown
    assert "[AMS_PORT, default 8080]" in shown


@pytest.mark.parametrize(
    ("command", "absent", "extra"),
    [
        (["serve"], "sqlalchemy", "service"),
        (["authn", "serve"], "sqlalchemy", "service"),
        (["push"], "sqlalchemy", "service"),
        (["push"], "google.protobuf", "push"),
    ],
)
def test_what_is_missing_is_told_by_what_to_install(
    command: list[str], absent: str, extra: str, offline: Ams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, absent, None)

    said = f"ams: {absent} not installed; pip install 'argo-messaging[{extra}]' brings all it needs\n"
    assert offline(*command) == (2, "", said)
