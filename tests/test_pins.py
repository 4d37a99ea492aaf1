"""The files of versions: what was tested, and what an installation takes with hashes."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
TESTED = {
    canonicalize_name(name): version
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", (REQUIREMENTS / "constraints.txt").read_text(), re.MULTILINE)
}
SERVICE = (REQUIREMENTS / "service.txt").read_text()
PINS = re.findall(r"^([\w.-]+)==(\S+) (?:; (.+) )?\\\n((?:    --hash=\S+(?: \\)?\n)+)", SERVICE, re.MULTILINE)
"""Name, version, when it is needed, and the lines of its hashes."""


def test_every_pin_of_an_installation_is_what_was_tested() -> None:
    on_unix = [(name, version) for name, version, needed, _ in PINS if needed != "sys_platform == 'win32'"]

    assert [each for each in on_unix if TESTED.get(canonicalize_name(each[0])) != each[1]] == []


def test_every_line_of_the_file_belongs_to_a_pin_with_a_hash() -> None:
    lines = [line for line in SERVICE.splitlines() if not line.startswith("#")]

    assert len(PINS) > 40
    assert len(lines) == sum(1 + hashes.count("\n") for *_, hashes in PINS)
    assert {each for *_, hashes in PINS for each in re.findall(r"--hash=(.*?):", hashes)} == {"sha256"}


def test_what_the_service_needs_is_pinned_as_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = ("service", "kafka", "postgres", "push", "pubsub")
    texts = [*project["dependencies"], *(each for name in names for each in extras[name])]
    needed = [each for each in map(Requirement, texts) if each.name != project["name"]]
    pinned = {canonicalize_name(name): version for name, version, *_ in PINS}

    assert [each.name for each in needed if canonicalize_name(each.name) not in pinned] == []
    assert [str(each) for each in needed if not each.specifier.contains(pinned[canonicalize_name(each.name)])] == []


def test_the_container_is_made_of_pinned_files_alone() -> None:
    dockerfile = (ROOT / "deploy" / "compose" / "Dockerfile").read_text().replace("\\\n", "")
    installs = re.findall(r"pip install ([^&\n]*)", dockerfile)

    assert [("--require-hashes -r" in each) or ("--no-deps" in each) for each in installs] == [True, True]
    assert "service.txt" in (ROOT / "deploy" / "compose" / "compose.yaml").read_text()
