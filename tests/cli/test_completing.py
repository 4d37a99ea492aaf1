import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ams.cli.main import completed_words
from tests.cli.conftest import Ams, admins_environment
from tests.support.service import LiveService

NOBODY = "https://127.0.0.1:1"


def complete(ams: Ams, line: str, **variables: str) -> list[str]:
    """Return what bash would be offered at the end of the line."""
    words = line.split(" ")
    ran = ams(_AMS_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), **variables)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split()


@pytest.fixture(scope="module")
def prepared(service: LiveService, tmp_path_factory: pytest.TempPathFactory) -> Ams:
    """A project named like its folder, with what `MADE` says."""
    folder = tmp_path_factory.mktemp("completing")
    ams = Ams(admins_environment(service, folder), folder)
    for command in MADE.format(p=folder.name).splitlines():
        ran = ams(*command.split(), stdin='{"type": "object"}')
        assert ran.returncode == 0, ran.stderr
    return ams


MADE = """projects create {p}
topics create jobs
topics create readings
topics create rain
subs create watering jobs
schemas create reading --file -
members create {p}-u --role consumer
token create laptop --user {p}-u
bindings create checkin --user {p}-u --issuer https://i.example --subject {p}
issuers set i-{p} --url https://{p}.example --audience ams"""


OFFERED = {
    "completion": ["comp"],
    "show": ["topics sh"],
    "rain readings": ["topics show r"],
    "": ["topics show -p elsewhere r"],
    "jobs": ["subs create late --topic jo", "publish jo", "tail jo", "metrics topic jo"],
    "watering": [
        "subs show ", "pull wa", "ack wa", "doctor wa", "metrics subscription wa", "topics read jobs --subscription wa",
    ],
    "reading": ["topics create other --schema re", "schemas show re"],
    "topics/": ["acl show t"],
    "topics/jobs": ["acl show topics/jo"],
    "subs/watering": ["acl add subs/"],
    "{p}-u": [
        "acl set topics/jobs {p}-", "members show {p}-", "users show {p}-", "topics set-acl jobs {p}-",
        "token create new --user {p}-",
    ],
    "laptop": ["token show --user {p}-u lap"],
    "checkin": ["bindings delete --user {p}-u ch"],
    "i-{p}": ["issuers show i-{p}"],
    "{p}": ["projects show {p}", "topics list --project {p}", "users list --member-of {p}"],
}  # fmt: skip


@pytest.mark.parametrize(("line", "offered"), [(line, names) for names, lines in OFFERED.items() for line in lines])
def test_commands_complete_what_they_take(prepared: Ams, line: str, offered: str) -> None:
    name = prepared.folder.name

    assert sorted(complete(prepared, f"ams {line}".format(p=name))) == offered.format(p=name).split()


def test_options_are_completed(ams: Ams) -> None:
    assert "--page-size" in complete(ams, "ams topics list --page")


def test_whatever_goes_wrong_completes_nothing_and_says_nothing(ams: Ams) -> None:
    assert complete(ams, "ams topics show r", AMS_ENDPOINT=NOBODY) == []
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
    """Take one request without answering; return whether its client left sooner than clients do by themselves."""
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(ams: Ams, shell: str) -> None:
    ran = ams("completion", shell)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"complete_{shell}" in ran.stdout


@pytest.mark.parametrize(
    "shell", [pytest.param(each, marks=getattr(pytest.mark, each)) for each in ("bash", "zsh", "fish")]
)
def test_a_shell_understands_its_script(ams: Ams, shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(ams("completion", shell).stdout)

    assert subprocess.run([shell, "-n", str(script)], check=False).returncode == 0
