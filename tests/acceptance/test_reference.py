from pathlib import Path

import pytest

from tests.support.documents import ROOT, follow, make_clone
from tests.support.service import live_service

pytestmark = pytest.mark.acceptance

PAGES = ["projects", "users", "members", "registrations", "topics", "subscriptions", "access-lists"]


def test_the_conversations_of_the_reference_go_as_shown_with_one_service(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:
        for page in PAGES:
            with subtests.test(page):
                follow(ROOT / "docs" / "reference" / f"{page}.md", tmp_path, service.base_url)
