"""The tests that stand beside the console's components, run by Node."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.node
def test_what_the_tests_beside_the_components_ask_for_holds() -> None:
    ran = subprocess.run(
        ["scripts/console", "test"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "# pass 0" not in ran.stdout
