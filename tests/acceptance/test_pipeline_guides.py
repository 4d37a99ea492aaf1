"""The tutorial and guides for pipelines, followed with Java; the page of tables on S3 uses a real S3 server."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import parts, s3
from tests.support.documents import ROOT, blocks, follow, make_clone, run_script
from tests.support.service import live_service

pytestmark = [pytest.mark.acceptance, pytest.mark.spark, pytest.mark.long]

PAGES = ("tutorial/pipeline", "how-to/pipeline-archive", "how-to/pipeline-republish", "how-to/pipeline-write-one")
S3_PAGE = ROOT / "docs" / "reference" / "tables.md"
SECONDS = 900  # for a page: each start of Spark takes a while, and four minutes were seen on a busy machine


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_on_pipelines_work(page: str, tmp_path: Path) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:
        made = run_script(".venv/bin/ams projects create garden", tmp_path, AMS_ENDPOINT=service.base_url)
        assert made.returncode == 0, made.stdout

        follow(ROOT / "docs" / f"{page}.md", tmp_path, service.base_url, seconds=SECONDS)


def commands(block: str) -> tuple[str, str]:
    typed = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith(("$ ", "    "))]
    return "\n".join(typed), "".join(f"{line}\n" for line in block.splitlines() if not line.startswith(("$ ", "    ")))


@pytest.mark.go
@pytest.mark.curl
def test_every_line_about_tables_on_s3_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"AWS_ALLOW_HTTP": "true", "PATH": f".venv/bin:{os.environ['PATH']}"}
    for name, value in {**s3.environment(parts.s3_address()), **variables}.items():
        monkeypatch.setenv(name, value)
    table, local = parts.s3_table(), tmp_path / "srv"
    bucket = table.removeprefix("s3://")
    make_clone(tmp_path)
    asks, sets, copies = blocks(S3_PAGE, "console")

    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:

        def follow_block(block: str, *, without: str = "\n") -> str:
            """Run a block without the lines that begin so, and return its output."""
            typed, _ = commands(block)
            here = {"BUCKET": bucket, "PROJECT": "garden", " /srv/": f" {local}/", " /var/lib/": f" {tmp_path}/"}
            for named, placed in here.items():
                typed = typed.replace(named, placed)
            lines = "\n".join(line for line in typed.splitlines() if not line.startswith(without))
            done = run_script(lines, tmp_path, SECONDS, AMS_ENDPOINT=service.base_url)
            assert done.returncode == 0, f"{lines}\n{done.stdout}"
            return done.stdout

        follow_block("$ ams projects create garden\n$ ams topics create plants -p garden")
        follow_block("$ ams publish plants -p garden --data dry\n$ ams archive /srv/archive -p PROJECT")
        assert follow_block(asks) == commands(asks)[1] == "200\n412\n"
        assert "1 rows in 1 files" in follow_block(sets, without="export ")  # which would name another server
        if shutil.which("aws") and run_script("aws --version", tmp_path).returncode == 0:
            assert follow_block(copies).count("1 rows in 1 files") == 2
        follow_block("$ ams pipeline table check s3://BUCKET/archive")

    (tmp_path / "read.py").write_text("\n".join(blocks(S3_PAGE, "python")).replace("s3://BUCKET", table))
    done = run_script(f"{sys.executable} read.py", tmp_path, SECONDS)
    assert done.returncode == 0, done.stdout
    assert "plants" in done.stdout
