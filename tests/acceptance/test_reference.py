from pathlib import Path

import pytest

from tests.support.documents import ROOT, follow, make_clone, run_examples
from tests.support.service import live_service

pytestmark = [pytest.mark.acceptance, pytest.mark.curl, pytest.mark.long]

REFERENCE = ROOT / "docs" / "reference"
PAGES = (
    *("projects", "users", "members", "registrations", "topics", "subscriptions", "schemas", "access-lists", "metrics"),
    "reading",
)


def test_the_conversations_of_the_reference_go_as_shown_with_one_service(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:
        for page in PAGES:
            with subtests.test(page):
                follow(REFERENCE / f"{page}.md", tmp_path, service.base_url)
        with subtests.test("examples of reading"):
            run_examples(REFERENCE / "reading.md", tmp_path, service.base_url)


def test_the_conversation_about_push_goes_as_shown_where_it_is_enabled(tmp_path: Path) -> None:
    make_clone(tmp_path)
    push = ("--push-enabled", "--push-worker-token", "the-token-of-the-push-worker")
    with live_service(tmp_path / "ams-data", "--tls-self-signed", *push) as service:
        follow(REFERENCE / "push.md", tmp_path, service.base_url)
