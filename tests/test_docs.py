import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.core.settings import Settings
from ams.http.errors import STATUS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
KINDS = ["tutorial", "how-to", "reference", "explanation"]

LINK = re.compile(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)")


FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def links(page: Path) -> Iterator[Path]:
    for target in LINK.findall(FENCED.sub("", page.read_text())):
        yield (page.parent / target).resolve()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [str(target.relative_to(ROOT)) for target in links(page) if not target.exists()] == []


def test_every_page_and_decision_is_on_its_list() -> None:
    listed = set(links(DOCS / "README.md"))
    assert {page for kind in KINDS for page in (DOCS / kind).glob("*.md")} - listed == set()
    index = DOCS / "decisions" / "README.md"
    assert set(index.parent.glob("0*.md")) - set(links(index)) == set()


def test_every_setting_has_its_row_in_the_reference() -> None:
    reference = (DOCS / "reference" / "settings.md").read_text()
    rows = [
        f"| `{name}` | {f'`{default}`' if default else ''} | {help_text} |"
        for name, _variable, default, help_text in Settings().display_rows()
    ]

    assert [row for row in rows if row not in reference] == []


def test_every_status_of_an_error_has_its_row_in_the_reference() -> None:
    reference = (DOCS / "reference" / "http.md").read_text()
    assert [s for s in STATUS.values() if not re.search(rf"\| {s.code} \|.*`{s.word}`", reference)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_a_title_and_names_targets_that_exist_and_no_folder_of_somebody(page: Path) -> None:
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert text.startswith("# ")
    assert set(re.findall(r"`make ([a-z-]+)", text)) - targets == set()
    assert re.findall(r"/home/\w+|/Users/\w+", text) == []


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    words = re.findall(r"^\*\*(.+?)\.\*\*", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert words == sorted(set(words), key=str.lower)
