import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from ams import __version__
from ams.cli.exits import Exit
from ams.cli.main import COMMANDS, SERVICE_COMMANDS, program
from tests.cli.conftest import Ams, AmsProcess
from tests.client.stub import stub_server
from tests.support.service import LiveService

BY_DOCSTRING = ("publish", "pull", "ack", "tail", "settings", "completion")
"""Commands without others below them; their help is their own."""

HEAVY = {"httpx", "rich", "sqlalchemy", "uvicorn", "uvloop"}


def modules_after(*arguments: str) -> tuple[str, set[str]]:
    """Run `ams` in a fresh interpreter; return its stdout and which of the heavy modules it loaded."""
    code = f"""
import sys
from ams.cli.main import main
try:
    main({list(arguments)!r})
except SystemExit:
    print(*sorted(sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=with_source())
    out, _, modules = ran.stdout.rstrip("\n").rpartition("\n")
    return out, HEAVY & set(modules.split())


def test_the_overview_lists_every_command_and_loads_none() -> None:
    overview, loaded = modules_after("--help")

    assert loaded == set()
    for name, entry in (SERVICE_COMMANDS | COMMANDS).items():
        assert f"  {name} {entry.help}" in [re.sub("(?<=[a-z])  +", " ", line) for line in overview.splitlines()]


def test_serving_does_not_load_the_client() -> None:
    _, loaded = modules_after("serve", "--help")

    assert loaded == set()


def with_source() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, offline: Ams) -> None:
    code, out, _ = offline(name, "--help")

    assert code == 0
    assert COMMANDS[name].help.rstrip(".") in out or name in BY_DOCSTRING


def test_every_command_and_option_is_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()

    for command, options in commands():
        assert command in page, f"{command} is not in docs/reference/cli.md"
        for option in options:
            assert option in page, f"{option} of {command} is not in docs/reference/cli.md"


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield every command as people type it, with its options."""
    for name in COMMANDS:
        yield from leaves(f"ams {name}", get_command(program([name])).commands[name])


def leaves(name: str, command: Any) -> Iterator[tuple[str, list[str]]]:
    for child, below in getattr(command, "commands", {}).items():
        yield from leaves(f"{name} {child}", below)
    if not hasattr(command, "commands"):
        options = [option for each in command.params for option in (*each.opts, *each.secondary_opts)]
        yield name, [option for option in options if option.startswith("-") and option != "--help"]


@pytest.mark.parametrize("command", [[], ["serve"], ["check"], ["topics", "create"], ["admin", "tokens", "show"]])
def test_help_tells_every_exit_code(command: list[str], offline: Ams) -> None:
    _, out, _ = offline(*command, "--help")

    _, _, told = " ".join(out.split()).partition("Exit codes: ")
    assert [int(code) for code in re.findall(r"\d+", told)] == list(Exit)


@pytest.mark.parametrize(
    ("other", "usual"), [(["topic", "list"], ["topics", "list"]), (["sub", "list"], ["subs", "list"])]
)
def test_other_spellings_do_the_same(ams: Ams, project: str, other: list[str], usual: list[str]) -> None:
    assert ams(*other) == ams(*usual)
    assert ams(*other).returncode == 0


def test_the_version_is_shown(offline: Ams) -> None:
    assert offline("--version") == (0, f"ams {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "usage", "reason"),
    [
        (["nonsense"], "ams [OPTIONS] COMMAND [ARGS]...", "No such command 'nonsense'."),
        (["topics", "nonsense"], "ams topics [OPTIONS] COMMAND [ARGS]...", "No such command 'nonsense'."),
        (["topics", "create"], "ams topics create [OPTIONS] {TOPIC}", "Missing argument 'TOPIC'."),
        (["status", "--port"], "ams status [OPTIONS]", "No such option: --port"),
        (["serve", "--nonsense"], "ams serve [OPTIONS]", "No such option '--nonsense'."),
    ],
)
def test_a_mistake_of_usage_is_one_line_after_the_usage_and_ends_with_2(
    arguments: list[str], usage: str, reason: str, offline: Ams
) -> None:
    code, out, err = offline(*arguments)

    assert (code, out) == (2, "")
    above, line = err.splitlines()
    assert above == f"Usage: {usage}"
    assert line.startswith(f"ams: {reason}")


@pytest.mark.parametrize("arguments", [[], ["topics"]])
def test_where_a_command_is_missing_the_help_lists_them(arguments: list[str], offline: Ams) -> None:
    code, out, err = offline(*arguments)

    assert (code, out) == (2, "")
    assert "Commands:" in err


def test_without_a_service_to_talk_to_the_way_out_is_said(offline: Ams) -> None:
    said = "ams: no service to talk to: give --endpoint, set AMS_ENDPOINT, or use --profile\n"
    assert offline("topics", "list") == (2, "", said)


def test_a_fault_is_one_line_and_a_traceback_only_when_asked(offline: Ams, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("ams.cli.command.connection", broken)
    code, _, err = offline("status")
    assert code == 70
    assert err == "ams: unexpected ZeroDivisionError: division by zero (a fault in ams; AMS_DEBUG=1 shows where)\n"

    with pytest.raises(ZeroDivisionError):
        offline("status", AMS_DEBUG="1")


def test_http_where_tls_is_spoken_is_told(ams: Ams, service: LiveService) -> None:
    endpoint = service.base_url.replace("https:", "http:")

    ran = ams("status", "--endpoint", endpoint)

    assert ran.returncode == 6
    assert ran.stderr == f"ams: cannot reach {endpoint}: the connection was closed without an answer; is it https?\n"


def test_tls_where_http_is_spoken_is_told(ams: Ams) -> None:
    with stub_server() as plain:
        endpoint = plain.url.replace("http:", "https:")
        ran = ams("status", "--endpoint", endpoint)

    assert ran.returncode == 6
    assert ran.stderr == f"ams: cannot reach {endpoint}: it does not answer by TLS; is it http?\n"


def test_a_certificate_that_is_not_trusted_ends_with_6(ams: Ams) -> None:
    ran = ams("status", AMS_CA="")

    assert ran.returncode == 6
    assert "not signed by a trusted CA (--ca names another)" in ran.stderr


def test_what_the_service_refuses_is_one_line_and_the_code_of_its_kind(ams: Ams, project: str) -> None:
    user = f"{project}-c"
    ams("members", "create", user, "--role", "consumer")
    made = ams("admin", "tokens", "refresh", user).stdout
    token = next(line.split()[1] for line in made.splitlines() if line.startswith("token"))

    refused = {
        1: ams("topics", "create", "not a name"),
        3: ams("topics", "create", "jobs", "--token", token),
        4: ams("topics", "show", "jobs"),
        5: ams("projects", "create", project),
    }

    for code, ran in refused.items():
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (code, "", 1), ran.stderr
        assert ran.stderr.startswith("ams: ")
        assert token not in ran.stderr
    assert ams("topics", "list", "--token", "0" * 64).returncode == 3


def test_without_any_token_it_is_said_that_none_was_given(ams: Ams, project: str) -> None:
    ran = ams("topics", "list", AMS_TOKEN="")

    assert ran.returncode == 3
    assert ran.stderr.startswith("ams: Unauthorized (no token was given: --token-file, AMS_TOKEN")
    assert ran.stderr.count("\n") == 1


OLD = "0" * 64


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("words", "variables", "place"),
    [
        (["--token", OLD], {}, "--token"),
        (["--token-file", "old.token"], {}, "file old.token of an option"),
        ([], {"AMS_TOKEN": OLD}, "AMS_TOKEN"),
        ([], {"AMS_TOKEN": "", "AMS_TOKEN_FILE": "old.token"}, "file old.token of a variable"),
        ([], {"AMS_TOKEN": "", "AMS_BEARER_TOKEN": OLD}, "AMS_BEARER_TOKEN"),
        (["--profile", "site"], {"AMS_TOKEN": ""}, "profile site"),
    ],
)
def test_a_token_that_is_not_good_any_more_is_told_with_its_place(
    ams: Ams, tmp_path: Path, words: list[str], variables: dict[str, str], place: str
) -> None:
    (tmp_path / "old.token").write_text(OLD)
    (tmp_path / "ams").mkdir()
    (tmp_path / "ams" / "profiles.toml").write_text(f'[site]\ntoken = "{OLD}"\n')

    ran = ams("topics", "list", *words, XDG_CONFIG_HOME=str(tmp_path), **variables)

    assert ran.returncode == 3
    assert f"(the token of {place} " in ran.stderr
    assert OLD not in ran.stderr


def test_beside_the_data_folder_nothing_is_needed(
    ams_process: AmsProcess, service: LiveService, tmp_path: Path
) -> None:
    (tmp_path / "ams-data").symlink_to(service.data)
    local = service.base_url.replace("127.0.0.1", "localhost")

    ran = ams_process("projects", "list", AMS_ENDPOINT=local, AMS_TOKEN="", AMS_CA="")

    assert ran.returncode == 0, ran.stderr


def test_a_reader_that_goes_away_ends_it_quietly(environment: dict[str, str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "ams.cli.main", "settings"],
            stdout=write_end,
            stderr=subprocess.PIPE,
            env=environment,
        )
    finally:
        os.close(write_end)

    assert (ran.returncode, ran.stderr) == (141, b"")
