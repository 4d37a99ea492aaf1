"""The how-to shows what happens, and the units that run it are in order."""

import subprocess
from pathlib import Path

import pytest

from tests.provisioning.conftest import Project, Provision
from tests.provisioning.listings import APEL
from tests.support.documents import ROOT, blocks, is_shown

GUIDE = ROOT / "docs" / "how-to" / "provision-from-gocdb.md"


def test_the_files_of_the_guide_make_the_plan_it_shows(provision: Provision, project: Project, tmp_path: Path) -> None:
    for name, text in zip(("endpoints.xml", "sites.xml"), blocks(GUIDE, "xml"), strict=True):
        (tmp_path / name).write_text(text)
    (shown,) = blocks(GUIDE, "text")
    project.topic(APEL)
    command = ("gocdb", "--feed", "endpoints.xml", "--sites", "sites.xml", "--service-type", APEL)

    planned, done, again = provision(*command, "--dry-run"), provision(*command), provision(*command)

    assert is_shown(shown, planned.stdout), planned.stdout
    assert (done.returncode, again.returncode) == (0, 0)
    assert "nothing to do" in again.stdout


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.systemd
def test_the_timer_and_its_service_are_in_order_and_give_the_program_little(tmp_path: Path) -> None:
    for name in ("service", "timer"):
        text = (
            (ROOT / "deploy" / "systemd" / f"ams-provision@.{name}")
            .read_text()
            .replace("/opt/ams/bin/ams", "/bin/true")
        )
        (tmp_path / f"ams-provision@gocdb.{name}").write_text(text)
    service, timer = (str(tmp_path / f"ams-provision@gocdb.{name}") for name in ("service", "timer"))
    verified = run("systemd-analyze", "verify", service, timer)
    exposure = run("systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", service)

    assert (verified.returncode, verified.stderr) == (0, "")
    assert exposure.returncode == 0, exposure.stdout
