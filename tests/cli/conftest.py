import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from ams.cli.main import main
from tests.support.service import LiveService, live_service


class Ran(NamedTuple):
    """How a command ended and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


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
def ams(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ams:
    """Run `ams` as the admin in a folder of its own, in this process: a fresh interpreter takes ten times as long."""

    def run(*arguments: str, stdin: str = "", **variables: str) -> Ran:
        given = tmp_path / "stdin"
        given.write_text(stdin)
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
        with monkeypatch.context() as patched, given.open() as opened:
            patched.setattr("os.environ", environment | variables)
            patched.setattr("sys.stdin", opened)
            patched.setattr("sys.stdout", out)
            patched.setattr("sys.stderr", err)
            # What it sets would be there for all tests that follow.
            patched.setattr("ams.core.observing.structlog.configure", lambda **_: None)
            patched.chdir(tmp_path)
            code = exit_code_of(arguments)
        return Ran(code, _written(out), _written(err))

    return run


@pytest.fixture
def ams_process(environment: dict[str, str], tmp_path: Path) -> Ams:
    """Run `ams` as the admin in a folder of its own, as a process."""

    def run(*arguments: str, **variables: str) -> Ran:
        ran = subprocess.run(
            [sys.executable, "-m", "ams.cli.main", *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=tmp_path,
            env=environment | variables,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    return run


def exit_code_of(arguments: Sequence[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


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
    ran = ams("projects", "create", name)
    assert ran.returncode == 0, ran.stderr
    return name
