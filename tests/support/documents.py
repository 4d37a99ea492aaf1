"""Documents run as a reader would: their commands in a folder like a clone, their output compared."""

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ENDPOINT = "https://localhost:8080"  # address of the service in documents; tests replace it
NOTHING: Mapping[str, str] = {}
SECONDS = 180.0  # timeout of a document's example; on a busy machine each command takes seconds to start

_FENCE = re.compile(r"^ *```(?P<kind>[^\n]*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
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
    [found] = blocks(document, kind)
    return found


def blocks(document: Path, kind: str) -> list[str]:
    """Return the blocks of this kind; those within a list are read without their indentation."""
    return [textwrap.dedent(fence["text"]) for fence in _FENCE.finditer(document.read_text()) if fence["kind"] == kind]


def write_programs(document: Path, folder: Path, endpoint: str, instead: Mapping[str, str] = NOTHING) -> None:
    """Write the blocks marked `python NAME` to the files that a reader would make."""
    for fence in _FENCE.finditer(document.read_text()):
        language, _, name = fence["kind"].partition(" ")
        if name and language == "python":
            (folder / name).write_text(_place_endpoint(fence["text"], endpoint, instead))


def run_examples(document: Path, folder: Path, endpoint: str) -> None:
    """Run the `python` blocks of a document as one program; it must print what the `text` blocks show."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks(document, "python")).replace(ENDPOINT, endpoint)],
        cwd=folder, env=environment(no_proxy="localhost"), capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(blocks(document, "text"))


def environment(**more: str) -> dict[str, str]:
    """Return this environment with the package and the demo importable, and without the user's AMS variables."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("AMS_")}
    return {**own, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **more}


def make_clone(folder: Path) -> None:
    """Put a clone's files into a folder: `.venv/bin/ams`, its Python, and the Makefile."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    _program(programs / "python", "")
    _program(programs / "ams", "-m ams.cli.main ")
    (folder / "Makefile").symlink_to(ROOT / "Makefile")


def _program(path: Path, arguments: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments}"$@"\n')
    path.chmod(0o755)


def follow(
    document: Path, clone: Path, endpoint: str, *, seconds: float = SECONDS, instead: Mapping[str, str] = NOTHING
) -> None:
    """Run a document's commands in one shell; fail at the first that fails or prints something else.

    `instead` has replacements for texts of the document, such as free ports for its ports.
    """
    todo = steps(document)
    script = "".join(f"printf '\\n@@ {number}\\n'\n{step.commands}\n" for number, step in enumerate(todo))
    done = run_script(_place_endpoint(script, endpoint, instead), clone, seconds, AMS_ENDPOINT=endpoint)
    outputs = dict(_outputs(done.stdout))
    assert done.returncode == 0, f"{document.name}, {todo[len(outputs) - 1].commands}{outputs[len(outputs) - 1]}"
    for number, step in enumerate(todo):
        if step.shown is not None:
            shown = _place_endpoint(step.shown, endpoint, instead)
            assert is_shown(shown, outputs[number]), (
                f"{document.name}, {step.commands}shows\n{shown}but gave\n{outputs[number]}"
            )


def is_shown(shown: str, output: str) -> bool:
    """Return whether an output matches a document, where `...` matches anything, and a line of it also no line."""
    # A quick run prints no line of progress.
    return _CHECKER.check_output(re.sub(r"^\.\.\.\n", "...", shown, flags=re.MULTILINE), output, _LOOSELY)


def _place_endpoint(text: str, endpoint: str, instead: Mapping[str, str]) -> str:
    for named, here in {ENDPOINT: endpoint, **instead}.items():
        text = text.replace(named, here)
    return text


def run_script(script: str, clone: Path, seconds: float = SECONDS, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run a shell script in the clone; both output streams are in `stdout`."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=clone, env=environment(no_proxy="localhost", **more),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
        check=False,
    )  # fmt: skip


def _outputs(printed: str) -> Iterator[tuple[int, str]]:
    _, *rest = re.split(r"^@@ (\d+)\n", printed, flags=re.MULTILINE)
    for number, output in zip(rest[::2], rest[1::2], strict=True):
        yield int(number), output


def write_file(path: Path, content: object) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)
