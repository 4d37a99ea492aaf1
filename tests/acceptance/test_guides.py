import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.documents import ROOT, block, environment, follow, make_clone, run, run_examples, write_programs
from tests.support.service import live_service

pytestmark = pytest.mark.acceptance

TUTORIAL = ROOT / "docs" / "tutorial" / "first-message.md"
PYTHON = ROOT / "docs" / "tutorial" / "python.md"
CLIENT = ROOT / "docs" / "reference" / "client.md"
ACCESS = ROOT / "docs" / "how-to" / "control-access.md"
GUIDES = ("back-up", "check-messages", "declare-resources", "keep-messages", "replay")
NEEDS_A_PROJECT = [ROOT / "docs" / "how-to" / f"{name}.md" for name in GUIDES]


def test_the_tutorial_works_line_by_line(tmp_path: Path) -> None:
    make_clone(tmp_path)
    serve = shlex.split(block(TUTORIAL, "sh service"))
    free_ports = environment(AMS_PORT="0", AMS_OPS_PORT="0")
    with subprocess.Popen(
        serve, cwd=tmp_path, env=free_ports, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as service:
        try:
            assert service.stdout is not None
            endpoint = service.stdout.readline().split()[1]
            follow(TUTORIAL, tmp_path, endpoint)
        finally:
            service.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("guide", NEEDS_A_PROJECT, ids=lambda guide: guide.stem)
def test_the_commands_of_a_guide_work(guide: Path, tmp_path: Path) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:
        made = run(".venv/bin/ams projects create garden", tmp_path, AMS_ENDPOINT=service.base_url)
        assert made.returncode == 0, made.stdout

        follow(guide, tmp_path, service.base_url)


def test_the_commands_of_the_guide_to_access_work_with_its_roles_file(tmp_path: Path) -> None:
    make_clone(tmp_path)
    roles = tmp_path / "roles.toml"
    roles.write_text(block(ACCESS, "toml"))
    with live_service(tmp_path / "ams-data", "--tls-self-signed", "--roles-file", str(roles)) as service:
        made = run(".venv/bin/ams projects create garden", tmp_path, AMS_ENDPOINT=service.base_url)
        assert made.returncode == 0, made.stdout

        follow(ACCESS, tmp_path, service.base_url)


def test_the_programs_of_the_python_tutorial_work(tmp_path: Path) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:
        write_programs(PYTHON, tmp_path, service.base_url)
        made = run(".venv/bin/ams projects create garden", tmp_path, AMS_ENDPOINT=service.base_url)
        assert made.returncode == 0, made.stdout

        follow(PYTHON, tmp_path, service.base_url)


def test_the_examples_of_the_client_run(tmp_path: Path) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:
        made = run(".venv/bin/ams projects create garden", tmp_path, AMS_ENDPOINT=service.base_url)
        assert made.returncode == 0, made.stdout

        run_examples(CLIENT, tmp_path, service.base_url)
