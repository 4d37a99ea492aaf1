"""What a machine lacks is named before and after the tests, and no test vanishes without a word."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ["prometheus", "systemd", "bash", "zsh", "fish", "strace", "cc", "mount"]
"""Parts whose tests are marked with their names."""


def preflight(part: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "scripts/preflight", part],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_missing_is_named_and_its_tests_are_left_out(part: str, tmp_path: Path) -> None:
    for tool in ("dirname", "mktemp", "rmdir"):
        (tmp_path / tool).symlink_to(Path("/usr/bin") / tool)

    ran = preflight(part, str(tmp_path))

    assert (ran.returncode, ran.stderr) == (1, "")
    assert ran.stdout.startswith(f"missing {part}: ")
    [case] = [line for line in (ROOT / "scripts" / "test").read_text().splitlines() if 'leave_out "$each"' in line]
    assert f" {part} " in case.replace(")", " ")


def test_every_mark_of_a_part_is_known_to_pytest(pytestconfig: pytest.Config) -> None:
    known = {line.partition(":")[0] for line in pytestconfig.getini("markers")}

    assert set(PARTS) <= known
