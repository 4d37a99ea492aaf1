import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ams.cli.main import completed_words
from tests.cli.conftest import Ams

NOBODY = "https://127.0.0.1:1"


def complete(ams: Ams, line: str, **variables: str) -> list[str]:
    """Return what bash would be offered at the end of the line."""
    words = line.split(" ")
    ran = ams(_AMS_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), **variables)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split()


def test_commands_and_their_verbs_are_completed(ams: Ams) -> None:
    assert complete(ams, "ams comp") == ["completion"]
    assert complete(ams, "ams topics sh") == ["show"]
    assert "--page-size" in complete(ams, "ams topics list --page")


def test_names_of_tokens_bindings_and_issuers_are_completed(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    ams("users", "create", user)
    ams("token", "create", "laptop", "--user", user)
    ams("bindings", "create", "checkin", "--user", user, "--issuer", "https://i.example", "--subject", project)
    ams("issuers", "set", f"i-{project}", "--url", f"https://{project}.example", "--audience", "ams")

    assert complete(ams, f"ams token show --user {user} lap") == ["laptop"]
    assert complete(ams, f"ams bindings delete --user {user} ch") == ["checkin"]
    assert complete(ams, f"ams issuers show i-{project}") == [f"i-{project}"]
    assert complete(ams, "ams token create new --user " + user[:-1]) == [user]
    ams("issuers", "delete", f"i-{project}")


def test_names_are_completed_from_the_service(ams: Ams, project: str) -> None:
    for topic in ("readings", "rain", "jobs"):
        ams("topics", "create", topic)
    ams("subs", "create", "watering", "--topic", "jobs")

    assert sorted(complete(ams, "ams topics show r")) == ["rain", "readings"]
    assert complete(ams, "ams subs show ") == ["watering"]
    assert complete(ams, "ams subs create late --topic jo") == ["jobs"]
    assert complete(ams, "ams topics show -p elsewhere r") == []


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("publish jo", ["jobs"]),
        ("tail jo", ["jobs"]),
        ("metrics topic jo", ["jobs"]),
        ("topics create other --schema re", ["reading"]),
        ("schemas show re", ["reading"]),
        ("pull wa", ["watering"]),
        ("ack wa", ["watering"]),
        ("doctor wa", ["watering"]),
        ("metrics subscription wa", ["watering"]),
        ("topics read jobs --subscription wa", ["watering"]),
        ("acl show t", ["topics/"]),
        ("acl show topics/jo", ["topics/jobs"]),
        ("acl add subs/", ["subs/watering"]),
    ],
)
def test_every_command_completes_what_it_takes(
    ams: Ams, project_with_names: str, line: str, offered: list[str]
) -> None:
    assert complete(ams, f"ams {line}") == offered


@pytest.mark.parametrize("line", ["acl set topics/jobs", "members show", "users show", "topics set-acl jobs"])
def test_people_are_completed(ams: Ams, project_with_names: str, line: str) -> None:
    user = f"{project_with_names}-u"

    assert complete(ams, f"ams {line} {user[:-1]}") == [user]


@pytest.mark.parametrize("line", ["projects show", "topics list --project", "users list --member-of"])
def test_projects_are_completed(ams: Ams, project: str, line: str) -> None:
    assert complete(ams, f"ams {line} {project}") == [project]


@pytest.fixture
def project_with_names(ams: Ams, project: str) -> str:
    """Make one of each thing in a project and return its name."""
    ams("topics", "create", "jobs")
    ams("subs", "create", "watering", "--topic", "jobs")
    ams("schemas", "create", "reading", "--file", "-", stdin='{"type": "object"}')
    ams("members", "create", f"{project}-u", "--role", "consumer")
    return project


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


def test_another_shell_is_a_mistake_of_usage(ams: Ams) -> None:
    assert ams("completion", "tcsh").returncode == 2
