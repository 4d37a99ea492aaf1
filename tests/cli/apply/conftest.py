from pathlib import Path

import pytest

from tests.cli.conftest import Ams
from tests.support.commands import Ran


class Files:
    """Declares texts in the test's project, with its name for `PROJECT`."""

    def __init__(self, ams: Ams, folder: Path, project: str) -> None:
        self._ams = ams
        self._folder = folder
        self.project = project

    def apply(self, text: str, *arguments: str) -> Ran:
        (self._folder / "file.yaml").write_text(self.fill_project(text))
        return self._ams("apply", "-f", "file.yaml", *arguments)

    def settle(self, text: str, *arguments: str) -> str:
        first = self.apply(text, "--yes", *arguments)
        assert first.returncode == 0, first.stderr
        assert self.apply(text, *arguments).stdout == "nothing to do\n"
        return first.stdout

    def fill_project(self, text: str) -> str:
        return text.replace("PROJECT", self.project)


@pytest.fixture
def files(ams: Ams, tmp_path: Path, environment: dict[str, str]) -> Files:
    return Files(ams, tmp_path, environment["AMS_PROJECT"])
