"""What `pip install argo-messaging` brings, alone and with each extra: what is imported there is declared."""

import ast
import sys
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ams.cli.extras import NEEDED

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = ("ams", "pyspark_ams")
WITHOUT_A_SERVICE = ("", "arrow", "postgres", "spark", "tables")
OF_THE_SERVICE = {
    "alembic", "httptools", "prometheus-client", "pyjwt", "pyopenssl", "sqlalchemy", "starlette", "uvicorn", "uvloop",
}  # fmt: skip
CALLED_OTHERWISE = {
    "google": "protobuf", "grpc": "grpcio", "grpc-health": "grpcio-health-checking", "jsonpath": "python-jsonpath",
    "bson": "pymongo", "markupsafe": "jinja2",
    "py4j": "pyspark", "yaml": "pyyaml",
}  # fmt: skip
"""Packages whose modules have another name, or that one of the declared ones brings and shows in its own interface."""
ONLY_WITH_A_SERVICE = (
    "ams.app", "ams.authn", "ams.cli.serve", "ams.core.observing", "ams.core.supervisor", "ams.storage",
)  # fmt: skip
"""What commands load after `need("service")`."""
OWN_EXTRA = ("ams.migrate", "ams.pipeline", "ams.tables")


def packages_of(extra: str, seen: Collection[str] = ()) -> set[str]:
    """Return what the project declares with an extra; its own extras are followed, packages of others are not."""
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
    """Return these modules of ours, and all that lie in them if they are packages."""
    files = [each for name in names for each in _files(SOURCES.joinpath(*name.split(".")))]
    return {".".join(each.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__") for each in files}


def _files(place: Path) -> list[Path]:
    return [*place.rglob("*.py")] if place.is_dir() else [place.with_suffix(".py")]


def imported_by(roots: Collection[str], without: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the packages that modules import, also in functions and through others of ours, each with one of them."""
    waiting, seen, found = list(roots), set[str](), dict[str, str]()
    while waiting:
        module = waiting.pop()
        if module in seen or f"{module}.".startswith(tuple(f"{each}." for each in without)):
            continue
        seen.add(module)
        waiting.extend(".".join(module.split(".")[:length]) for length in range(1, module.count(".") + 1))
        for name in _imports(module):
            top = name.partition(".")[0]
            if top in OURS:
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


@pytest.mark.parametrize(
    ("extra", "roots", "without"),
    [
        ("", modules("ams.client"), ()),
        ("", modules("ams.cli"), (*ONLY_WITH_A_SERVICE, *OWN_EXTRA)),
        ("tables", modules("ams.tables", "ams.pipeline.archiving"), ()),
        ("spark", modules("ams.pipeline", "pyspark_ams"), ()),
        ("migrate", modules("ams.migrate"), ("ams.service", "ams.storage.database.postgresql")),
    ],
    ids=["client", "commands", "tables", "spark", "migrate"],
)
def test_what_is_imported_is_declared(extra: str, roots: set[str], without: tuple[str, ...]) -> None:
    declared = packages_of(extra)
    imported = imported_by(roots, without)

    assert "msgspec" in imported
    assert {name: module for name, module in imported.items() if name not in declared} == {}


@pytest.mark.parametrize("extra", NEEDED)
def test_an_extra_is_known_by_what_it_brings(extra: str) -> None:
    tops = [canonicalize_name(each.partition(".")[0]) for each in NEEDED[extra]]

    assert {CALLED_OTHERWISE.get(each, each) for each in tops} <= packages_of(extra) - packages_of("")
