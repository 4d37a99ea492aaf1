"""The guide to tables on S3, line by line as it is printed, on a real S3 server."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import parts, s3
from tests.support.documents import ROOT, blocks, make_clone, run
from tests.support.service import live_service

GUIDE = ROOT / "docs" / "how-to" / "tables-on-s3.md"
SECONDS = 300
"""For a block: a start of Spark takes a while on a busy machine."""
pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.spark, pytest.mark.go, pytest.mark.curl]


def commands(block: str) -> tuple[str, str]:
    """Return what is typed, and what is shown."""
    typed = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith(("$ ", "    "))]
    return "\n".join(typed), "".join(f"{line}\n" for line in block.splitlines() if not line.startswith(("$ ", "    ")))


def test_every_line_of_the_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = parts.s3_address()
    path = f".venv/bin:{os.environ['PATH']}"
    variables = {**s3.environment(address), "AWS_ALLOW_HTTP": "true", "PATH": path}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    table, local = parts.s3_table(), tmp_path / "srv"
    bucket = table.removeprefix("s3://")
    make_clone(tmp_path)
    asks, sets, copies = blocks(GUIDE, "console")

    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:

        def follow(block: str, *, without: str = "\n") -> str:
            """Run a block but lines that begin so, and return what it printed."""
            typed, _ = commands(block)
            here = {"BUCKET": bucket, "PROJECT": "garden", " /srv/": f" {local}/", " /var/lib/": f" {tmp_path}/"}
            for named, placed in here.items():
                typed = typed.replace(named, placed)
            lines = "\n".join(line for line in typed.splitlines() if not line.startswith(without))
            done = run(lines, tmp_path, SECONDS, AMS_ENDPOINT=service.base_url)
            assert done.returncode == 0, f"{lines}\n{done.stdout}"
            return done.stdout

        follow("$ ams projects create garden\n$ ams topics create plants -p garden")
        follow("$ ams publish plants -p garden --data dry\n$ ams archive /srv/archive -p PROJECT")
        assert follow(asks) == commands(asks)[1] == "200\n412\n"
        assert "1 rows in 1 files" in follow(sets, without="export ")  # which would name another server
        if shutil.which("aws") and run("aws --version", tmp_path).returncode == 0:
            assert follow(copies).count("1 rows in 1 files") == 2
        follow("$ ams pipeline table check s3://BUCKET/archive")

    program = "\n".join(blocks(GUIDE, "python")).replace("s3://BUCKET", table)
    (tmp_path / "read.py").write_text(program)
    done = run(f"{sys.executable} read.py", tmp_path, SECONDS)
    assert done.returncode == 0, done.stdout
    assert "plants" in done.stdout
