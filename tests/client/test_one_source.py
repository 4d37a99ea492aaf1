"""The client for threads is written from that for asyncio by `make client`."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "client.py"


def ran(script: Path, *arguments: str) -> int:
    return subprocess.run([sys.executable, str(script), *arguments]).returncode


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Return a copy of the script, with copies of both clients beside it as it expects them."""
    for path in (SCRIPT, *(SCRIPT.parents[1] / "src/ams/client" / name for name in ("client.py", "async_client.py"))):
        copy = tmp_path / path.relative_to(SCRIPT.parents[1])
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    return tmp_path / "scripts" / "client.py"


def test_the_client_for_threads_is_as_it_is_written() -> None:
    assert ran(SCRIPT, "--check") == 0, "please run: make client"


@pytest.mark.parametrize("changed", ["client.py", "async_client.py"])
def test_a_change_of_one_client_alone_is_noticed_and_made_good(copied: Path, changed: str) -> None:
    path = copied.parents[1] / "src/ams/client" / changed
    path.write_text(path.read_text().replace("def offsets", "def where"))

    assert ran(copied, "--check") == 1
    assert ran(copied) == 0
    assert ran(copied, "--check") == 0
