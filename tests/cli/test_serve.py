"""`ams serve` and `ams push` as they begin."""

import sys
from pathlib import Path

import pytest

from tests.support.commands import exit_code_of


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
def test_settings_and_files_that_cannot_be_used_are_one_line_and_a_mistake_of_usage(
    arguments: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = ["--data", str(tmp_path / "data"), "--port", "0", "--ops-port", "0", "--min-free-bytes", "0"]

    assert exit_code_of(["serve", *here, *arguments]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ams: ")]
    assert len(said) == 1
    assert said[0].startswith(f"ams: {reason}")


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


def test_the_help_shows_a_default_only_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(["serve", "--help"]) == 0

    shown = " ".join(capsys.readouterr().out.split())
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
    command: list[str],
    absent: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, absent, None)

    assert exit_code_of(command) == 2
    said = f"ams: {absent} not installed; pip install 'argo-messaging[{extra}]' brings all it needs\n"
    assert capsys.readouterr().err == said
