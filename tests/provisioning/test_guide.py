"""The how-to shows what happens."""

from pathlib import Path

from tests.provisioning.conftest import Project, Provision
from tests.provisioning.listings import APEL
from tests.support.documents import ROOT, blocks, is_shown

GUIDE = ROOT / "docs" / "how-to" / "provision-from-gocdb.md"


def test_the_files_of_the_guide_make_the_plan_it_shows(provision: Provision, project: Project, tmp_path: Path) -> None:
    for name, text in zip(("endpoints.xml", "sites.xml"), blocks(GUIDE, "xml"), strict=True):
        (tmp_path / name).write_text(text)
    (shown,) = blocks(GUIDE, "text")
    project.topic(APEL)
    command = ("gocdb", "--feed", "endpoints.xml", "--sites", "sites.xml", "--service-type", APEL)

    planned, done, again = provision(*command, "--dry-run"), provision(*command), provision(*command)

    assert is_shown(shown, planned.out), planned.out
    assert (done.code, again.code) == (0, 0)
    assert "nothing to do" in again.out
