"""Every rule cited in code, tests and documents is in docs/contract, whose README explains the format of citations."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.contract.lines import LINES

ROOT = Path(__file__).parents[1]
CONTRACT = ROOT / "docs" / "contract"
LAWS = 8
FOLDERS = ["src", "tests", "demo", "bench", "local_cluster", "simulation", "deploy", "scripts", "docs"]
KINDS = {".py", ".md", ".proto", ".sh", ".toml", ".cfg", ".yaml", ".yml"}

ROW = r"[AMPUORB]\d{1,2}"
NUMBER = r"\d{1,2}(?:\.\d{1,2})?"
BEFORE, AFTER = r"(?<![\w.%$/#@+-])(?<![^=][\"'])", r"(?![\w%-]|\.\d| BYTES)"
"""Not within a word or number, nor first in quotes, which is the name of something else; but `why="R4"`."""
ITEM = rf"{BEFORE}(?:[AB]\d\.\d|{ROW}|{NUMBER}){AFTER}"
GAP = r"[ #]+"
"""A citation may continue on the next line, also of a comment."""
BETWEEN = rf"(?:[,;]?{GAP}and{GAP}|,?{GAP}to{GAP}|[,;][ #]*|{GAP})"
LIST = rf"{ITEM}(?:{BETWEEN}(?:(?:steps? )?{ITEM}))*"

OF_THE_CONTRACT = re.compile(rf"[Cc]ontracts?,?(?:{GAP}(?:sections?|part))*{GAP}(?P<list>{LIST})")
OF_CLIENTS = re.compile(rf"[Cc]lients(?:\.md)?,?{GAP}(?=part{GAP}[AB]|[ARB]\d)(?P<part>part{GAP})?(?P<list>{LIST})")
OF_CERTIFICATES = re.compile(rf"authn{GAP}(?P<list>A\d{{1,2}}){AFTER}")
OF_ROWS = re.compile(rf"[AMPUORB](?<![\w.%$/#@+-].)(?<![^=][\"'].)\d{{1,2}}{AFTER}(?:{BETWEEN}{ITEM})*")
"""Begins with a letter, and looks back from there, for speed: it searches all files."""
SECTION_BEFORE = re.compile(rf"{BEFORE}{NUMBER},?{GAP}$")
NEAR = 150
"""Characters after the word "contract" in which a section in brackets belongs to it: what it has for that (10.3)."""
IN_BRACKETS = re.compile(r" \((\d{1,2}\.\d)\)")
TESTS = re.compile(r"def test_(?:(?P<section>\d{1,2}_\d)_)?(?P<row>[ampuor]\d{1,2})_")
"""Names of tests; the rows A are told apart by their docstrings, or by the differences that name them."""
ROWS = re.compile(r'\b[Rr]ow\(\s*"([^"]+)"')
STEP = re.compile(r"(?<=^1\.5) \d$")  # of the order of checks
LAW = re.compile(r"laws? (\d+)(?: (?:to|and) (\d+))?")
OUTSIDE = re.compile(r"\bshared/|\b(?:ams-v1|corrections|design|google-pubsub|reference-data)\.md\b")
WORTH_A_LOOK = re.compile(rf"ontract|lients|\blaws? \d|\b{ROW}\b|shared/|\.md|def test_\w\d")

PAGES = {"push": "push", "authn": "certificates", "certificates": "certificates", "clients": "clients"}
PAGES |= {"http": "api", "api": "api"}
"""By the word before "contract"."""
PAGE_OF_ROWS = {"P": "push", "M": "api", "U": "api", "O": "api", "R": "clients"}  # of rows A there are three kinds


class Citation(NamedTuple):
    page: str
    item: str
    section: str = ""  # of a row: the section that is cited before it
    is_section: bool = False


class Page(NamedTuple):
    sections: frozenset[str]
    rows: dict[str, str]  # each with the section it stands in


@cache
def page(name: str) -> Page:
    sections = {""}
    rows: dict[str, str] = {}
    section = ""
    for line in (CONTRACT / f"{name}.md").read_text().splitlines():
        if heading := re.match(r"#+ ([AB]?\d+(?:\.\d+)?)\.? ", line):
            section = heading[1]
            sections.add(section)
        elif row := re.match(rf"\| ({ROW}) \|", line):
            assert row[1] not in rows, f"{name}: {row[1]} stands twice"
            rows[row[1]] = section
    return Page(frozenset(sections), rows)


def default_page(path: Path) -> str:
    """Return the default page of a file's sections and rows A."""
    if path.parent == Path("docs/contract"):
        return path.stem
    names = {*path.parent.parts, path.stem.removeprefix("test_")}
    if names & {"authn", "provisioning"}:
        return "certificates"
    return "clients" if path.parent.parts[-2:] == ("acceptance", "clients") else "api"


def citations(text: str, path: Path) -> Iterator[tuple[int, Citation]]:
    """Yield the citations in a text of one line, each with its place in the text."""
    here = default_page(path)
    led = [*((found, _named_before(text, found.start()) or here) for found in OF_THE_CONTRACT.finditer(text)),
           *((found, "clients") for found in OF_CLIENTS.finditer(text)),
           *((found, "certificates") for found in OF_CERTIFICATES.finditer(text))]  # fmt: skip
    for found, among in led:
        is_part = bool(found.groupdict().get("part"))
        yield from ((found.start(), each) for each in items(found["list"], among, is_part=is_part))
    for found in OF_ROWS.finditer(text):
        if not any(other.start() <= found.start() < other.end() for other, _ in led):
            section = SECTION_BEFORE.search(text[max(0, found.start() - 16) : found.start()])
            among = "push" if here == "api" and found[0].startswith("P") else here
            listed = (section[0] if section else "") + found[0]
            yield from ((found.start(), each) for each in items(listed, among))
    for word in re.finditer("[Cc]ontract", text):
        for found in IN_BRACKETS.finditer(text, word.end(), word.end() + NEAR):
            yield found.start(), Citation(_named_before(text, word.start()) or here, found[1], is_section=True)
    for found in TESTS.finditer(text):
        row = found["row"].upper()
        if here == "certificates" or row[0] != "A":
            yield found.start(), Citation(_page_of(row, here), row, (found["section"] or "").replace("_", "."))


def items(listed: str, among: str, *, is_part: bool = False) -> Iterator[Citation]:
    """Yield the sections and rows of a list as `14.2, steps 1 to 5; A21, A24`; steps are not sections.

    `among` is the default page. Sections of clients begin with a letter.
    """
    section, in_steps = "", False
    for found in re.finditer(rf"(steps? )?({ITEM})", listed):
        item = found[2]
        in_steps = bool(found[1]) or (in_steps and item.isdigit())
        if in_steps:
            continue
        if item[0].isdigit():
            among = "api" if among == "clients" else among
            section = item
            yield Citation(among, item, is_section=True)
        elif item[0] == "B" or is_part or "." in item:
            yield Citation("clients", item, is_section=True)
        else:
            yield Citation(_page_of(item, among), item, section)


def _named_before(text: str, position: int) -> str | None:
    """Return the page named by the word before "contract", if any."""
    word = re.search(rf"(\w+){GAP}$", text[max(0, position - 40) : position])
    return PAGES.get(word[1].lower()) if word else None


def _page_of(row: str, among: str) -> str:
    return PAGE_OF_ROWS.get(row[0], among)


def leads_nowhere(citation: Citation) -> bool:
    """Return whether the section or row is missing, or the row is not in the section cited before it, which has
    rows."""
    there = page(citation.page)
    if citation.is_section:
        return citation.item not in there.sections
    if citation.item not in there.rows:
        return True
    within = f"{citation.section}."
    has_rows = any(f"{each}.".startswith(within) for each in there.rows.values())
    return has_rows and not f"{there.rows[citation.item]}.".startswith(within)


def broken_citations(text: str, path: Path) -> Iterator[str]:
    """Yield the broken citations of a file, as sentences."""

    def at_line(position: int, what: str) -> str:
        return f"{path}:{text.count(chr(10), 0, position) + 1}: {what}"

    flat = text.replace("\n", " ")
    for position, citation in citations(flat, path):
        if leads_nowhere(citation):
            within = f" in section {citation.section}" if citation.section else ""
            yield at_line(position, f"{citation.item} is not{within} in docs/contract/{citation.page}.md")
    for law in LAW.finditer(flat):
        if not all(1 <= int(each) <= LAWS for each in law.groups() if each):
            yield at_line(law.start(), f"there is no {law[0]}")
    for outside in OUTSIDE.finditer(flat):
        yield at_line(outside.start(), f"{outside[0]} is not in the repository")


def texts() -> Iterator[tuple[Path, str]]:
    """Yield all texts that may have citations, except this file and the page that explains them."""
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.*") if file.suffix in KINDS]
    for file in [*files, *ROOT.glob("*.md")]:
        if file not in (Path(__file__), CONTRACT / "README.md"):
            text = file.read_text()
            if WORTH_A_LOOK.search(text):
                yield file.relative_to(ROOT), text


def test_every_citation_leads_to_a_section_or_row_of_the_contract() -> None:
    assert [each for path, text in texts() for each in broken_citations(text, path)] == []


def test_every_line_that_a_row_of_the_table_names_is_in_the_contract() -> None:
    named = {each for file in (ROOT / "tests" / "contract").glob("*.py") for each in ROWS.findall(file.read_text())}
    lines = {line.strip() for each in named for line in each.split(",")} | set(LINES)
    of_the_contract = {line for line in lines if line[0].isdigit() or line.startswith("clients")}

    assert len(of_the_contract) > 100
    for line in of_the_contract:
        cited = line if line.startswith("clients") else f"contract {STEP.sub('', line)}"
        assert list(broken_citations(cited, Path("x.py"))) == [], line


def test_every_law_is_in_the_contract() -> None:
    assert re.findall(r"^\| (\d) \| \*\*", (CONTRACT / "README.md").read_text(), re.MULTILINE) == [
        str(number) for number in range(1, LAWS + 1)
    ]
