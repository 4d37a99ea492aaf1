from pathlib import Path

import pytest

from tests.support.administration import ENGINES, url_of


@pytest.fixture(params=ENGINES)
def registry_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path)
