"""The tutorial and the guides to pipelines, followed by a reader with Java."""

from pathlib import Path

import pytest

from tests.support.documents import ROOT, follow, make_clone, run
from tests.support.service import live_service

pytestmark = [pytest.mark.acceptance, pytest.mark.spark]

PAGES = (
    "tutorial/pipeline",
    "how-to/pipeline-archive",
    "how-to/pipeline-metrics",
    "how-to/pipeline-replay",
    "how-to/pipeline-republish",
    "how-to/pipeline-write-one",
)
SECONDS = 300
"""For a page: each start of Spark takes a while, on a busy machine a long one."""


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_on_pipelines_work(page: str, tmp_path: Path) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:
        made = run(".venv/bin/ams projects create garden", tmp_path, AMS_ENDPOINT=service.base_url)
        assert made.returncode == 0, made.stdout

        follow(ROOT / "docs" / f"{page}.md", tmp_path, service.base_url, seconds=SECONDS)
