import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import PROCESS, Ran, run_ams
from tests.support.service import LiveService, live_service
from tests.support.waiting import PATIENCE_SECONDS

SERVICE_TOKEN = "the-token-of-the-service"
WORKER_TOKEN = "the-token-of-the-push-worker"


class Ams:
    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self._environment = environment
        self.folder = folder

    def __call__(self, *arguments: str, stdin: str = "", **variables: str) -> Ran:
        return run_ams(arguments, self._environment | variables, stdin=stdin, folder=self.folder)

    def json(self, *arguments: str, code: int = 0, stdin: str = "", **variables: str) -> Any:
        """Run a command that must end with this code; return its JSON output."""
        ran = self(*arguments, "-o", "json", stdin=stdin, **variables)
        assert ran.returncode == code, ran.stderr
        return json.loads(ran.stdout)


AmsProcess = Callable[..., Ran]
StartAms = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """Run one service for all tests of the command line; each has its own project."""
    data = tmp_path_factory.mktemp("service") / "ams-data"
    push = ("--push-enabled", "--push-worker-token", WORKER_TOKEN)
    own = ("--service-token", SERVICE_TOKEN)
    with live_service(
        data, "--tls-self-signed", "--min-free-bytes", "0", "--reserve-bytes", "0", *push, *own
    ) as service:
        yield service


def admins_environment(service: LiveService, folder: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("AMS_")}
    return own | {
        "HOME": str(folder), "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "AMS_ENDPOINT": service.base_url,
        "AMS_TOKEN": service.token, "AMS_CA": str(service.ca), "AMS_PROJECT": folder.name.replace(".", "-"),
    }  # fmt: skip


def prepare_project(service: LiveService, folder: Path, commands: str) -> Ams:
    """Make a project named after the folder; run commands there, one a line, with its name for `{p}`."""
    ams = Ams(admins_environment(service, folder), folder)
    for command in (f"projects create {folder.name}\n" + commands.format(p=folder.name)).splitlines():
        ran = ams(*command.split(), stdin='{"type": "object"}')
        assert ran.returncode == 0, ran.stderr
    return ams


@pytest.fixture
def environment(service: LiveService, tmp_path: Path) -> dict[str, str]:
    return admins_environment(service, tmp_path)


@pytest.fixture
def ams(environment: dict[str, str], tmp_path: Path) -> Ams:
    return Ams(environment, tmp_path)


@pytest.fixture
def offline_ams(tmp_path: Path) -> Ams:
    return Ams({"HOME": str(tmp_path)}, tmp_path)


@pytest.fixture
def start_ams(environment: dict[str, str], tmp_path: Path) -> Iterator[StartAms]:
    """Start `ams` as the administrator in its own folder; the process ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [*PROCESS, *arguments]
        started.append(subprocess.Popen(command, text=True, cwd=tmp_path, env=environment | variables, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def ams_process(start_ams: StartAms) -> AmsProcess:
    def run_process(*arguments: str, **variables: str) -> Ran:
        process = start_ams(*arguments, **variables)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        return Ran(process.returncode, out, err)

    return run_process


@pytest.fixture
def project(ams: Ams, environment: dict[str, str]) -> str:
    name = environment["AMS_PROJECT"]
    made = ams("projects", "create", name)
    assert made.returncode == 0, made.stderr
    return name


@pytest.fixture
def reader(ams: Ams, project: str) -> str:
    """Make the topic `jobs` with three messages, and a subscription to it; return the subscription's name."""
    ams("topics", "create", "jobs")
    assert ams("subs", "create", "reader", "--topic", "jobs", "--ack-deadline", "60").returncode == 0
    assert ams("publish", "jobs", stdin="one\ntwo\nthree\n").stdout.split() == ["0", "1", "2"]
    return "reader"
