"""The conversations of the reference pages, all held with one running service."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.documents import ROOT, follow, make_clone
from tests.support.service import live_service

pytestmark = pytest.mark.acceptance

PAGES = ["projects", "users", "members", "registrations", "topics", "subscriptions", "access-lists"]


class Clone(NamedTuple):
    """A folder like a clone, beside whose data a service runs."""

    folder: Path
    endpoint: str


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    folder = tmp_path_factory.mktemp("clone")
    make_clone(folder)
    with live_service(folder / "ams-data", "--tls-self-signed") as service:
        yield Clone(folder, service.base_url)


@pytest.mark.parametrize("page", PAGES)
def test_the_conversation_of_a_page_of_the_reference_goes_as_shown(page: str, clone: Clone) -> None:
    follow(ROOT / "docs" / "reference" / f"{page}.md", clone.folder, clone.endpoint)
