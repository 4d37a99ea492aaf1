"""Google's Pub/Sub clients in other languages, as programs get them: each fetched once by the tool of its language.

The versions are pinned by the files beside this one. The program of the guide is here in each language; beside it are
programs that work on until they are killed.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from local_cluster.jars import ROOT, Jars, once, there
from tests.support.marks import skip_without

HERE = Path(__file__).parent
_NODE = ROOT / ".parts" / "google-node-6.2.0-traced"
_JAVA = Jars("google-java-1.150.1-traced", HERE / "pom.xml")


def _python(folder: Path) -> None:
    """Keep it as it is: one of our own packages."""


def _node(folder: Path) -> None:
    if not _NODE.is_dir() and shutil.which("npm") is None:
        skip_without("npm", "npm is missing, which fetches Google's client for Node")
    (folder / "node_modules").symlink_to(once(_NODE, _npm) / "node_modules")


def _npm(folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    _run_command(folder, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")


def _go(folder: Path) -> None:
    """Go itself keeps what it fetches and builds, for all clones of a machine."""
    wanted, here = (
        _go_version((HERE / "go.mod").read_text()), _go_version(_run_command(folder, "go", "env", "GOVERSION")),
    )  # fmt: skip
    if here < wanted:
        skip_without("go", f"Google's client for Go needs Go {wanted}, this is {here}")
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / name, folder)
    _run_command(folder, "go", "mod", "download")


def _java(folder: Path) -> None:
    if not _JAVA.folder.is_dir() and shutil.which("mvn") is None:
        skip_without("maven", "Maven is missing, which fetches Google's client for Java")
    (folder / "jars").symlink_to(there(_JAVA))


def _go_version(text: str) -> tuple[int, ...]:
    found = re.search(r"^go ?(\d+)\.(\d+)", text, re.MULTILINE)
    assert found, text
    return tuple(map(int, found.groups()))


def _run_command(folder: Path, *command: str) -> str:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, f"{' '.join(command)}: {(ran.stdout + ran.stderr)[-2000:]}"
    return ran.stdout


class Language(NamedTuple):
    name: str
    get: Callable[[Path], None]  # puts the client where a program in this folder finds it
    program: str  # of the guide: a file beside this one
    streams: int  # how many its program opens, for two subscriptions
    receiver: tuple[str, str] = ("", "")
    """File and command of the program that runs until it is killed; empty if there is no such program."""

    def put(self, folder: Path) -> None:
        """Put the client, and the program of the guide, into a folder."""
        self.get(folder)
        shutil.copy(HERE / self.program, folder)


def _language_param(language: Language, mark: Any = ()) -> Any:
    return pytest.param(language, marks=mark, id=language.name)


OTHER_LANGUAGES = [
    _language_param(
        Language("node", _node, "garden.mjs", 10, ("receive.mjs", "exec node receive.mjs")), pytest.mark.node
    ),
    _language_param(
        Language("go", _go, "garden.go", 2, ("receive.go", "go build -o receive receive.go && exec ./receive")),
        pytest.mark.go,
    ),
    _language_param(
        Language("java", _java, "Garden.java", 2, ("Receive.java", "exec java -cp 'jars/*' Receive.java")),
        pytest.mark.jdk,
    ),
]
PYTHON = Language("python", _python, "garden.py", 2)
LANGUAGES = [_language_param(PYTHON), *OTHER_LANGUAGES]
