from pathlib import Path

import pytest

from tests.support import parts, s3


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> str:
    """Yield the address of an S3 server, which is also in the environment."""
    address = parts.s3_address()
    for name, value in s3.environment(address).items():
        monkeypatch.setenv(name, value)
    return address


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.go)])
def table_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Yield locations of a table: a folder, then a prefix in a bucket."""
    if request.param == "folder":
        return str(tmp_path / "table")
    request.getfixturevalue("store")
    return parts.s3_table()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "table"
