"""Documents as a reader follows them: their commands run in a folder like a clone, their output compared."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ENDPOINT = "https://localhost:8080"
"""Where documents say the service is; tests put the real place there."""

_FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_CHECKER = doctest.OutputChecker()
_LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Step(NamedTuple):
    """One block of commands, and the output shown below it, if any."""

    commands: str
    shown: str | None


def steps(document: Path) -> list[Step]:
    """Return the `sh` blocks of a document; a `text` block right after one is its output."""
    found: list[Step] = []
    end_of_commands = -1
    text = document.read_text()
    for fence in _FENCE.finditer(text):
        if fence["kind"] == "sh":
            found.append(Step(fence["text"], None))
            end_of_commands = fence.end()
        elif fence["kind"] == "text" and not text[end_of_commands : fence.start()].strip() and found:
            found[-1] = Step(found[-1].commands, fence["text"])
    return found


def block(document: Path, kind: str) -> str:
    """Return the only block of this kind."""
    [found] = [fence["text"] for fence in _FENCE.finditer(document.read_text()) if fence["kind"] == kind]
    return str(found)


def environment(**more: str) -> dict[str, str]:
    """Return this environment with the package and the demo importable, and without anybody's AMS variables."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("AMS_")}
    return {**own, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **more}


def make_clone(folder: Path) -> None:
    """Give a folder what documents use of a clone: `.venv/bin/ams` and the Makefile."""
    ams = folder / ".venv" / "bin" / "ams"
    ams.parent.mkdir(parents=True)
    ams.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ams.cli.main "$@"\n')
    ams.chmod(0o755)
    (folder / "Makefile").symlink_to(ROOT / "Makefile")


def follow(document: Path, clone: Path, endpoint: str) -> None:
    """Run a document's commands in one shell, as a reader would; fail at the first that fails or shows otherwise."""
    todo = steps(document)
    script = "".join(f"printf '\\n@@ {number}\\n'\n{step.commands}\n" for number, step in enumerate(todo))
    done = run(script.replace(ENDPOINT, endpoint), clone, AMS_ENDPOINT=endpoint)
    outputs = dict(_outputs(done.stdout))
    assert done.returncode == 0, f"{document.name}, {todo[len(outputs) - 1].commands}{outputs[len(outputs) - 1]}"
    for number, step in enumerate(todo):
        if step.shown is not None:
            assert _CHECKER.check_output(step.shown, outputs[number], _LOOSELY), (
                f"{document.name}, {step.commands}shows\n{step.shown}but gave\n{outputs[number]}"
            )


def run(script: str, clone: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run a shell script in the clone; what it prints on both streams is in `stdout`."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=clone,
        env=environment(no_proxy="localhost", **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )


def _outputs(printed: str) -> Iterator[tuple[int, str]]:
    _, *rest = re.split(r"^@@ (\d+)\n", printed, flags=re.MULTILINE)
    for number, output in zip(rest[::2], rest[1::2], strict=True):
        yield int(number), output
