"""The guides to pipelines, followed by a reader with Java."""

from pathlib import Path

import pytest

from tests.support.documents import ROOT, follow, make_clone, run
from tests.support.service import live_service

pytestmark = [pytest.mark.acceptance, pytest.mark.spark]

GUIDES = ("pipeline-archive", "pipeline-metrics", "pipeline-replay", "pipeline-republish")


@pytest.mark.parametrize("guide", GUIDES)
def test_the_commands_of_a_guide_to_a_pipeline_work(guide: str, tmp_path: Path) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:
        made = run(".venv/bin/ams projects create garden", tmp_path, AMS_ENDPOINT=service.base_url)
        assert made.returncode == 0, made.stdout

        follow(ROOT / "docs" / "how-to" / f"{guide}.md", tmp_path, service.base_url)
