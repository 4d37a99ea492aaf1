"""The program `ams`: its imports, commands, completion, and failures."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from ams import __version__
from ams.cli.exit_codes import Exit
from ams.cli.main import COMMANDS, SERVICE_COMMANDS, completed_words, program
from tests.cli.conftest import Ams, AmsProcess, prepare_project
from tests.client.stub import stub_server
from tests.support.service import LiveService

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "reference" / "cli.md").read_text()


@pytest.mark.parametrize("words", [("--help",), ("serve", "--help"), ("topics", "create", "--help")])
def test_help_tells_every_exit_code_loads_no_heavy_module_and_lists_every_command(words: tuple[str, ...]) -> None:
    code = f"""
import sys
from ams.cli.main import main
try:
    main({list(words)!r})
except SystemExit:
    print(*sorted(sys.modules))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    out, _, modules = ran.stdout.rstrip("\n").rpartition("\n")

    told = " ".join(out.split()).partition("Exit codes: ")[2]
    assert [int(code) for code in re.findall(r"\d+", told)] == list(Exit)
    if "create" in words:  # what asks a service needs a client
        return
    assert {"httpx", "rich", "sqlalchemy", "starlette", "uvloop"} & set(modules.split()) == set()
    if words == ("--help",):
        lines = [re.sub("(?<=[a-z])  +", " ", line) for line in out.splitlines()]
        wanted = [f"  {name} {each.help}" for name, each in (SERVICE_COMMANDS | COMMANDS).items() if " " not in name]
        assert [each for each in wanted if each not in lines] == []


def test_every_command_and_exit_code_is_in_the_reference_and_every_option_in_the_help() -> None:
    for name in COMMANDS:
        for command, silent in leaf_commands(f"ams {name}", get_command(program([name])).commands[name]):
            assert silent == [], f"options of {command} without a help text"
            group, _, leaf = command.rpartition(" ")
            alone, in_its_group = rf"`{command}[` ]", rf"^\| `{group}` \|.*`{leaf}[` ]"
            found = re.search(f"{alone}|{in_its_group}", REFERENCE, re.MULTILINE)
            assert found, f"{command} is not in docs/reference/cli.md"
    for code in Exit:
        assert f"| {code.value} |" in REFERENCE, code.name


def leaf_commands(name: str, command: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield each command, and its options that the help does not explain."""
    for child, below in getattr(command, "commands", {}).items():
        yield from leaf_commands(f"{name} {child}", below)
    if not hasattr(command, "commands"):
        options = [each for each in command.params if each.opts[0].startswith("-")]
        yield name, [each.opts[0] for each in options if each.hidden or not each.help]


ON_PAGES = re.compile(r'`(?:[^`]*?: )?(ams [^`]*)`|"(ams [^"]*)"|<code>(ams [^<]*)</code>')
"""Completion of a whole template or text, of a text after a colon, or by code."""
IN_TEXTS = re.compile(rf"`ams ((?:{'|'.join(map(re.escape, COMMANDS))})(?: [a-z][a-z-]+)*)")


def offered_on_pages() -> list[str]:
    texts = (re.sub(r"\$\{[^{}]*\}", "X", path.read_text()) for path in (ROOT / "console" / "src").rglob("*.tsx"))
    return sorted({next(filter(None, found)) for text in texts for found in ON_PAGES.findall(text)})


def named_in_texts() -> list[str]:
    modules = (path for path in (ROOT / "src" / "ams").rglob("*.py") if "cli" not in path.parts)
    return sorted({found for path in modules for found in IN_TEXTS.findall(path.read_text())})


def found_command(words: list[str]) -> tuple[Any, list[str]]:
    command: Any = get_command(program([words[0]]))
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def test_a_command_that_a_page_of_the_console_or_a_message_offers_can_be_typed() -> None:
    lines = offered_on_pages()
    assert len(lines) >= 12
    for line in lines:
        command, left = found_command(shlex.split(line)[1:])
        assert not hasattr(command, "commands"), f"there is no {line!r}"
        if "--help" not in left:
            command.make_context(line, left)
    for words in named_in_texts():
        command, left = found_command(words.split())
        assert not (left and hasattr(command, "commands")), f"there is no `ams {words}`"


@pytest.mark.parametrize("other", ["topic", "sub"])
def test_other_spellings_do_the_same(ams: Ams, project: str, other: str) -> None:
    assert ams(other, "list") == ams(f"{other}s", "list")
    assert ams(other, "list").returncode == 0


def test_a_list_has_pages_and_says_how_to_get_the_next(ams: Ams, project: str) -> None:
    for name in ("a", "b", "c"):
        ams("topics", "create", name)
        ams("members", "create", f"{project}-{name}")
        ams("subs", "create", name, "--topic", "a")

    first = ams("topics", "list", "--page-size", "2")
    token = first.stderr.split()[-1]
    assert [line.split()[0] for line in first.stdout.splitlines()[1:]] == ["c", "b"]
    assert first.stderr == f"there is more: --page-token {token}\n"
    second = ams("topics", "list", "--page-size", "2", "--page-token", token, "-o", "json")
    assert [each["name"][-1] for each in json.loads(second.stdout)["topics"]] == ["a"]
    assert second.stderr == ""

    for words in (["topics", "list"], ["subs", "list"], ["members", "list"], ["users", "list", "--member-of", project]):
        found = ams.json(*words, "--all", "--page-size", "2")
        [items] = [value for value in found.values() if isinstance(value, list)]
        assert [each["name"][-1] for each in items] == ["c", "b", "a"]
        assert (found["totalSize"], found["nextPageToken"]) == (3, "")


def test_both_versions_are_shown_also_without_a_token(ams: Ams) -> None:
    shown, of_both = ams("version", AMS_TOKEN=""), ams.json("version")
    assert ams("--version").stdout == f"ams {__version__}\n"
    assert shown.stdout.splitlines()[0].split() == ["client", __version__]
    assert (of_both["client"], "build_time" in of_both["service"]) == (__version__, True)


def test_a_fault_is_one_line_and_a_traceback_only_when_asked(offline_ams: Ams, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("ams.cli.command.connection", broken)
    code, _, err = offline_ams("status")
    assert code == 70
    assert err == "ams: unexpected ZeroDivisionError: division by zero (a fault in ams; AMS_DEBUG=1 shows where)\n"

    with pytest.raises(ZeroDivisionError):
        offline_ams("status", AMS_DEBUG="1")


def test_a_connection_that_fails_is_told_with_the_way_out(ams: Ams, offline_ams: Ams, service: LiveService) -> None:
    with stub_server() as plain:
        for asked, reason in (
            ({"AMS_ENDPOINT": service.base_url.replace("https:", "http:")}, "closed without an answer; is it https?"),
            ({"AMS_ENDPOINT": plain.url.replace("http:", "https:")}, "it does not answer by TLS; is it http?"),
            ({"AMS_CA": ""}, "not signed by a trusted CA (--ca names another)"),
        ):
            ran = ams("status", **asked)
            assert (ran.returncode, ran.stderr.count("\n")) == (6, 1)
            assert ran.stderr.startswith("ams: cannot reach ")
            assert reason in ran.stderr
    said = "ams: no service to talk to: give --endpoint, set AMS_ENDPOINT, or use --profile\n"
    assert offline_ams("topics", "list") == (2, "", said)


def test_what_the_service_refuses_is_one_line_and_the_code_of_its_kind(ams: Ams, project: str) -> None:
    user = f"{project}-c"
    ams("members", "create", user, "--role", "consumer")
    token = ams.json("admin", "tokens", "refresh", user)["token"]

    refused = {
        1: ams("topics", "create", "not a name"), 3: ams("topics", "create", "jobs", "--token", token),
        4: ams("topics", "show", "jobs"), 5: ams("projects", "create", project),
    }  # fmt: skip

    for code, ran in refused.items():
        assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (code, "", 1), ran.stderr
        assert ran.stderr.startswith("ams: ")
        assert token not in ran.stderr


OLD = "0" * 64


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(("words", "variables", "said"), [
    (["--token", OLD], {}, "the token of --token "),
    (["--token-file", "old.token"], {}, "the token of file old.token of an option "),
    ([], {"AMS_TOKEN": OLD}, "the token of AMS_TOKEN "),
    ([], {"AMS_TOKEN": "", "AMS_TOKEN_FILE": "old.token"}, "the token of file old.token of a variable "),
    ([], {"AMS_TOKEN": "", "AMS_BEARER_TOKEN": OLD}, "the token of AMS_BEARER_TOKEN "),
    (["--profile", "site"], {"AMS_TOKEN": ""}, "the token of profile site "),
    ([], {"AMS_TOKEN": ""}, "no token was given: --token-file, AMS_TOKEN"),
    ([], {"AMS_TOKEN": "", "AMS_CA": ""}, "the token of file ams-data/admin.token "),
])  # fmt: skip
def test_a_token_that_is_not_good_any_more_is_told_with_its_place(
    ams: Ams, service: LiveService, tmp_path: Path, words: list[str], variables: dict[str, str], said: str
) -> None:
    (tmp_path / "old.token").write_text(OLD)
    if "ams-data" in said:
        (tmp_path / "ams-data").mkdir()
        (tmp_path / "ams-data" / "admin.token").write_text(OLD)
        (tmp_path / "ams-data" / "ca.pem").symlink_to(service.ca)
    (tmp_path / "ams").mkdir()
    (tmp_path / "ams" / "profiles.toml").write_text(f'[site]\ntoken = "{OLD}"\n')

    ran = ams("topics", "list", *words, XDG_CONFIG_HOME=str(tmp_path), **variables)

    assert ran.returncode == 3
    assert f"({said}" in ran.stderr
    assert OLD not in ran.stderr


def test_beside_a_data_folder_nothing_is_needed(ams_process: AmsProcess, service: LiveService, tmp_path: Path) -> None:
    (tmp_path / "ams-data").symlink_to(service.data)
    local = service.base_url.replace("127.0.0.1", "localhost")
    ran = ams_process("projects", "list", AMS_ENDPOINT=local, AMS_TOKEN="", AMS_CA="")
    assert ran.returncode == 0, ran.stderr


def test_a_reader_that_goes_away_ends_it_quietly(environment: dict[str, str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    words = [sys.executable, "-m", "ams.cli.main", "settings"]
    try:
        ran = subprocess.run(words, stdout=write_end, stderr=subprocess.PIPE, env=environment)
    finally:
        os.close(write_end)

    assert (ran.returncode, ran.stderr) == (141, b"")


def complete(ams: Ams, line: str, **variables: str) -> list[str]:
    words = line.split(" ")
    ran = ams(_AMS_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), **variables)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split()


MADE = """topics create jobs
topics create readings
topics create rain
subs create watering jobs
schemas create reading --file -
members create {p}-u --role consumer
token create laptop --user {p}-u
bindings create checkin --user {p}-u --issuer https://i.example --subject {p}
issuers set i-{p} --url https://{p}.example --audience ams"""


@pytest.fixture(scope="module")
def prepared_ams(service: LiveService, tmp_path_factory: pytest.TempPathFactory) -> Ams:
    return prepare_project(service, tmp_path_factory.mktemp("completing"), MADE)


OFFERED = {
    "completion": ["comp"], "show": ["topics sh"], "rain readings": ["topics show r"],
    "": ["topics show -p elsewhere r"],
    "jobs": ["subs create late --topic jo", "publish jo", "tail jo", "metrics topic jo"],
    "watering": [
        "subs show ", "pull wa", "ack wa", "doctor wa", "metrics subscription wa", "topics read jobs --subscription wa",
    ],
    "reading": ["topics create other --schema re", "schemas show re"], "topics/": ["acl show t"],
    "topics/jobs": ["acl show topics/jo"], "subs/watering": ["acl add subs/"],
    "{p}-u": [
        "acl set topics/jobs {p}-", "members show {p}-", "users show {p}-", "topics set-acl jobs {p}-",
        "token create new --user {p}-",
    ],
    "laptop": ["token show --user {p}-u lap"], "checkin": ["bindings delete --user {p}-u ch"],
    "i-{p}": ["issuers show i-{p}"],
    "{p}": ["projects show {p}", "topics list --project {p}", "users list --member-of {p}"],
}  # fmt: skip


@pytest.mark.parametrize(("line", "offered"), [(line, names) for names, lines in OFFERED.items() for line in lines])
def test_commands_complete_what_they_take(prepared_ams: Ams, line: str, offered: str) -> None:
    name = prepared_ams.folder.name
    assert sorted(complete(prepared_ams, f"ams {line}".format(p=name))) == offered.format(p=name).split()


def test_whatever_goes_wrong_completes_nothing_and_says_nothing(ams: Ams) -> None:
    assert complete(ams, "ams topics show r", AMS_ENDPOINT="https://127.0.0.1:1") == []
    assert complete(ams, "ams topics show r", AMS_ENDPOINT="") == []
    assert complete(ams, "ams topics show r", AMS_TOKEN="wrong") == []
    assert complete(ams, "ams topics show r", AMS_UNKNOWN="x", AMS_PROFILE="nowhere") == []


def test_a_service_that_does_not_answer_is_not_waited_for(ams: Ams) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as threads:
        silent.settimeout(30)
        given_up = threads.submit(is_given_up, silent)

        assert complete(ams, "ams topics show r", AMS_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}") == []

        assert given_up.result()


def is_given_up(silent: socket.socket) -> bool:
    """Take one request without answering; return whether its client left before its usual timeout."""
    connection, _ = silent.accept()
    with connection:
        connection.settimeout(10)  # other commands wait for half a minute
        try:
            while connection.recv(65536):
                pass
        except TimeoutError:
            return False
    return True


def test_only_a_shell_that_asks_is_answered() -> None:
    assert completed_words({"COMP_WORDS": "ams topics "}) == []
    assert completed_words({"_AMS_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "ams subs l"}) == ["subs", "l"]


@pytest.mark.parametrize(
    "shell", [pytest.param(each, marks=getattr(pytest.mark, each)) for each in ("bash", "zsh", "fish")]
)
def test_there_is_a_script_for_each_shell_and_the_shell_understands_it(ams: Ams, shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(ams("completion", shell).stdout)
    assert f"complete_{shell}" in script.read_text()
    assert subprocess.run([shell, "-n", str(script)], check=False).returncode == 0
