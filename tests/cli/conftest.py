import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.commands import PROCESS, Ran, run_ams
from tests.support.service import LiveService, live_service

Ams = Callable[..., Ran]

SECONDS = 30
SERVICE_TOKEN = "the-token-of-the-service"
WORKER_TOKEN = "the-token-of-the-push-worker"


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """Run one service for all tests of the command line; they work in projects of their own."""
    data = tmp_path_factory.mktemp("service") / "ams-data"
    push = ("--push-enabled", "--push-worker-token", WORKER_TOKEN)
    own = ("--service-token", SERVICE_TOKEN)
    with live_service(
        data, "--tls-self-signed", "--min-free-bytes", "0", "--reserve-bytes", "0", *push, *own
    ) as service:
        yield service


@pytest.fixture
def ams(environment: dict[str, str], tmp_path: Path) -> Ams:
    """Run `ams` as the admin in a folder of its own, in this process."""

    def run(*arguments: str, stdin: str = "", **variables: str) -> Ran:
        return run_ams(arguments, environment | variables, stdin=stdin, folder=tmp_path)

    return run


@pytest.fixture
def ams_process(environment: dict[str, str], tmp_path: Path) -> Ams:
    """Run `ams` as the admin in a folder of its own, as a process."""

    def run(*arguments: str, **variables: str) -> Ran:
        done = subprocess.run(
            [*PROCESS, *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=tmp_path,
            env=environment | variables,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def environment(service: LiveService, tmp_path: Path) -> dict[str, str]:
    """Return variables that point at the service as its admin, and at the test's own project."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("AMS_")}
    return own | {
        "HOME": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
        "AMS_ENDPOINT": service.base_url,
        "AMS_TOKEN": service.token,
        "AMS_CA": str(service.ca),
        "AMS_PROJECT": tmp_path.name.replace(".", "-"),
    }


@pytest.fixture
def project(ams: Ams, environment: dict[str, str]) -> str:
    """Make the test's project and return its name."""
    name = environment["AMS_PROJECT"]
    made = ams("projects", "create", name)
    assert made.returncode == 0, made.stderr
    return name
