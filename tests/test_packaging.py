"""Dependencies of `pip install argo-messaging`, alone and with each extra; imports between packages; and the pins."""

import ast
import re
import sys
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ams.cli.extras import MODULES_OF_EXTRAS

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DECLARED = PYPROJECT["project"]
WITHOUT_A_SERVICE = ("", "arrow", "postgres", "spark", "tables")
OF_THE_SERVICE = {
    "alembic", "httptools", "prometheus-client", "pyjwt", "pyopenssl", "sqlalchemy", "starlette", "uvloop",
}  # fmt: skip
CALLED_OTHERWISE = {
    "google": "protobuf", "grpc": "grpcio", "grpc-health": "grpcio-health-checking",
    "grpc-tools": "grpcio-tools", "jsonpath": "python-jsonpath",
    "bson": "pymongo", "markupsafe": "jinja2",
    "py4j": "pyspark", "yaml": "pyyaml",
}  # fmt: skip
"""Packages whose modules have other names, or that a declared one installs and exposes in its own interface."""
ONLY_WITH_A_SERVICE = (
    "ams.app", "ams.authn", "ams.cli.serve", "ams.core.telemetry", "ams.core.supervisor", "ams.storage",
    "ams.validation.protobuf",
)  # fmt: skip
"""Modules that commands import after `need("service")`."""
OWN_EXTRA = ("ams.migrate", "ams.pipeline", "ams.tables")


def packages_of(extra: str, seen: Collection[str] = ()) -> set[str]:
    """Return the project's dependencies with an extra; its own extras are followed, those of other packages are not."""
    found: set[str] = set()
    for text in DECLARED["optional-dependencies"][extra] if extra else DECLARED["dependencies"]:
        wanted = Requirement(text)
        if wanted.name != DECLARED["name"]:
            found.add(canonicalize_name(wanted.name))
        for inner in wanted.extras if wanted.name == DECLARED["name"] else ():
            assert inner not in seen
            found |= packages_of(inner, {*seen, extra})
    return found if not extra else found | packages_of("")


def modules(*names: str) -> set[str]:
    """Return these modules of ours, and those inside of packages."""
    files = [each for name in names for each in _files(SOURCES.joinpath(*name.split(".")))]
    return {".".join(each.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__") for each in files}


def _files(place: Path) -> list[Path]:
    return [*place.rglob("*.py")] if place.is_dir() else [place.with_suffix(".py")]


def imported_by(roots: Collection[str], without: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the packages that modules import, also in functions and through our own modules, each with one
    importer."""
    waiting, seen, found = list(roots), set[str](), dict[str, str]()
    while waiting:
        module = waiting.pop()
        if module in seen or f"{module}.".startswith(tuple(f"{each}." for each in without)):
            continue
        seen.add(module)
        waiting.extend(".".join(module.split(".")[:length]) for length in range(1, module.count(".") + 1))
        for name in _imports(module):
            top = name.partition(".")[0]
            if top in ("ams", "pyspark_ams"):
                waiting.append(name)
            elif top not in sys.stdlib_module_names:
                package = canonicalize_name(top)
                found[CALLED_OTHERWISE.get(package, package)] = module
    return found


def _imports(module: str) -> Iterator[str]:
    place = SOURCES.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if file.is_file():  # else a name of a module
        yield from _names(ast.parse(file.read_text()))


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.Import):
            yield from (name.name for name in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module:
            yield each.module
            yield from (f"{each.module}.{name.name}" for name in each.names)
        elif not (isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"):
            yield from _names(each)


@pytest.mark.parametrize("extra", WITHOUT_A_SERVICE)
def test_who_wants_no_service_gets_none(extra: str) -> None:
    assert packages_of(extra) & OF_THE_SERVICE == set()


@pytest.mark.parametrize("extra", ["cluster", "dev", "kafka", "pubsub", "push"])
def test_an_extra_of_a_server_brings_the_service(extra: str) -> None:
    assert packages_of(extra) >= packages_of("service") >= OF_THE_SERVICE


@pytest.mark.parametrize(("extra", "roots", "without"), [
    ("", modules("ams.client"), ()),
    ("", modules("ams.cli"), (*ONLY_WITH_A_SERVICE, *OWN_EXTRA)),
    ("tables", modules("ams.tables", "ams.pipeline.topic_archive"), ()),
    ("spark", modules("ams.pipeline", "pyspark_ams"), ()),
    ("migrate", modules("ams.migrate"), ("ams.service", "ams.storage.database.postgresql")),
], ids=["client", "commands", "tables", "spark", "migrate"])  # fmt: skip
def test_what_is_imported_is_declared(extra: str, roots: set[str], without: tuple[str, ...]) -> None:
    declared = packages_of(extra)
    imported = imported_by(roots, without)
    assert "msgspec" in imported
    assert {name: module for name, module in imported.items() if name not in declared} == {}


@pytest.mark.parametrize("extra", MODULES_OF_EXTRAS)
def test_an_extra_is_known_by_what_it_brings(extra: str) -> None:
    tops = [canonicalize_name(each.partition(".")[0]) for each in MODULES_OF_EXTRAS[extra]]
    assert {CALLED_OTHERWISE.get(each, each) for each in tops} <= packages_of(extra) - packages_of("")


AMS = ROOT / "src" / "ams"
CONTRACTS = PYPROJECT["tool"]["importlinter"]["contracts"]
PACKAGES = {"ams." + each.parent.name for each in AMS.glob("*/__init__.py")}


def test_every_package_has_its_layer_and_nothing_lies_beside_the_packages() -> None:
    [layers] = [each["layers"] for each in CONTRACTS if each["name"] == "imports run one way"]
    named = [name.strip() for layer in layers for name in layer.split("|")]
    assert sorted(named) == sorted(PACKAGES)
    assert {each.name for each in AMS.glob("*.py")} <= {"__init__.py", "__main__.py"}


@pytest.mark.parametrize(("name", "package", "allowed"), [
    ("the client depends on the wire only", "client", {"ams.wire"}), ("the wire is structs alone", "wire", set()),
])  # fmt: skip
def test_the_client_may_import_the_wire_only_and_that_nothing_of_ours(name: str, package: str, allowed: set[str]):
    [contract] = [each for each in CONTRACTS if each["name"] == name]
    assert contract["source_modules"] == [f"ams.{package}"]
    assert set(contract["forbidden_modules"]) == PACKAGES - {f"ams.{package}"} - allowed


def test_nobody_looks_for_a_module_among_those_that_are_loaded() -> None:
    """`sys.modules` has a module before it is complete, while another thread imports it; an import waits for that."""
    looks = re.compile(r"sys\.modules(?!\[\w+\] = )")  # to put a module there is no look
    assert [each for each in AMS.rglob("*.py") if looks.search(each.read_text())] == []


REQUIREMENTS = ROOT / "requirements"
TESTED = {
    canonicalize_name(name): version
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", (REQUIREMENTS / "constraints.txt").read_text(), re.MULTILINE)
}
SERVICE = (REQUIREMENTS / "service.txt").read_text()
PINS = re.findall(r"^([\w.-]+)==(\S+) (?:; (.+) )?\\\n((?:    --hash=\S+(?: \\)?\n)+)", SERVICE, re.MULTILINE)
"""Name, version, environment marker, and the lines of its hashes."""


def test_every_pin_of_an_installation_is_what_was_tested() -> None:
    on_unix = [(name, version) for name, version, needed, _ in PINS if needed != "sys_platform == 'win32'"]
    assert [each for each in on_unix if TESTED.get(canonicalize_name(each[0])) != each[1]] == []


def test_every_line_of_the_file_belongs_to_a_pin_with_a_hash() -> None:
    lines = [line for line in SERVICE.splitlines() if not line.startswith("#")]
    assert len(PINS) > 40
    assert len(lines) == sum(1 + hashes.count("\n") for *_, hashes in PINS)
    assert {each for *_, hashes in PINS for each in re.findall(r"--hash=(.*?):", hashes)} == {"sha256"}


def test_what_the_service_needs_is_pinned_as_it_allows() -> None:
    extras = DECLARED["optional-dependencies"]
    names = ("service", "kafka", "postgres", "push", "pubsub")
    texts = [*DECLARED["dependencies"], *(each for name in names for each in extras[name])]
    needed = [each for each in map(Requirement, texts) if each.name != DECLARED["name"]]
    pinned = {canonicalize_name(name): version for name, version, *_ in PINS}

    assert [each.name for each in needed if canonicalize_name(each.name) not in pinned] == []
    assert [str(each) for each in needed if not each.specifier.contains(pinned[canonicalize_name(each.name)])] == []


def test_the_container_is_made_of_pinned_files_alone() -> None:
    dockerfile = (ROOT / "deploy" / "compose" / "Dockerfile").read_text().replace("\\\n", "")
    installs = re.findall(r"pip install ([^&\n]*)", dockerfile)
    assert [("--require-hashes -r" in each) or ("--no-deps" in each) for each in installs] == [True, True]
    assert "service.txt" in (ROOT / "deploy" / "compose" / "compose.yaml").read_text()


LISTED = re.compile(r"^(?: *- (?=.+?: )| *(?=[a-z0-9_/, ]+  ))`?([a-z0-9_]+/?(?:, [a-z0-9_]+/?)*)`?", re.MULTILINE)
"""Names of modules at the begin of a line of a package's docstring."""
LISTING_PACKAGES = [each for each in (SOURCES / "ams").rglob("__init__.py") if LISTED.search(each.read_text())]


@pytest.mark.parametrize("package", LISTING_PACKAGES, ids=lambda each: str(each.parent.relative_to(SOURCES)))
def test_the_docstring_of_a_package_lists_modules_that_exist(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse(package.read_text())) or ""
    listed = [name for names in LISTED.findall(docstring) for name in names.split(", ")]
    folder = package.parent
    assert [each for each in listed if not (folder / f"{each}.py").exists() and not (folder / each).is_dir()] == []
