"""`ams` in the process of a test: a fresh interpreter takes ten times as long to begin."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest

from ams.cli.main import main

PROCESS = (sys.executable, "-m", "ams.cli.main")
"""Command of `ams` as its own process."""


class Ran(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def ams(*words: str, **variables: str) -> Ran:
    return run_ams(words, {**os.environ, **variables})


def ams_alone(*words: str, **variables: str) -> Ran:
    return run_ams(words, {name: value for name, value in os.environ.items() if name[:4] != "AMS_"} | variables)


def run_ams(words: Sequence[str], environ: Mapping[str, str], *, stdin: str = "", folder: Path | None = None) -> Ran:
    """Run `ams` with these arguments, in a folder if one is named; it has no terminal."""
    with contextlib.ExitStack() as stack:
        # Real files: child processes may write there too.
        given, out, err = (stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(3))
        given.write(stdin)
        given.seek(0)
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        patched.setattr("os.environ", dict(environ))
        patched.setattr("sys.stdin", given)
        patched.setattr("sys.stdout", out)
        patched.setattr("sys.stderr", err)
        # Undo its settings, which would affect all later tests.
        patched.setattr("ams.core.telemetry.structlog.configure", lambda **_: None)
        if folder is not None:
            patched.chdir(folder)
        return Ran(exit_code_of(words), *map(_read_stream, (out, err)))


def exit_code_of(words: Sequence[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return int(ended.value.code or 0)


def _read_stream(stream: TextIO) -> str:
    stream.seek(0)
    return stream.read()
