import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.systemd
def test_the_timer_and_its_service_are_in_order_and_give_the_program_little(tmp_path: Path) -> None:
    for name in ("service", "timer"):
        text = (UNITS / f"ams-provision@.{name}").read_text().replace("/opt/ams/bin/ams", "/bin/true")
        (tmp_path / f"ams-provision@gocdb.{name}").write_text(text)
    service, timer = (str(tmp_path / f"ams-provision@gocdb.{name}") for name in ("service", "timer"))
    verified = run("systemd-analyze", "verify", service, timer)
    exposure = run("systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", service)

    assert (verified.returncode, verified.stderr) == (0, "")
    assert exposure.returncode == 0, exposure.stdout
