"""The import contracts of pyproject.toml speak of every package there is, and nothing lies beside the packages."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
AMS = ROOT / "src" / "ams"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
PACKAGES = {"ams." + each.parent.name for each in AMS.glob("*/__init__.py")}


def test_nothing_lies_beside_the_packages() -> None:
    assert {each.name for each in AMS.glob("*.py")} <= {"__init__.py", "__main__.py"}


def test_every_package_has_its_layer() -> None:
    [layers] = [each["layers"] for each in CONTRACTS if each["name"] == "imports run one way"]
    named = [name.strip() for layer in layers for name in layer.split("|")]

    assert sorted(named) == sorted(PACKAGES)


def test_the_client_may_import_the_wire_only() -> None:
    [contract] = [each for each in CONTRACTS if each["name"] == "the client depends on the wire only"]

    assert contract["source_modules"] == ["ams.client"]
    assert set(contract["forbidden_modules"]) == PACKAGES - {"ams.client", "ams.wire"}


def test_the_wire_may_import_nothing_of_ours() -> None:
    [contract] = [each for each in CONTRACTS if each["name"] == "the wire is structs alone"]

    assert contract["source_modules"] == ["ams.wire"]
    assert set(contract["forbidden_modules"]) == PACKAGES - {"ams.wire"}


def test_nobody_looks_for_a_module_among_those_that_are_loaded() -> None:
    """There a module stands before it is whole, while another thread loads it; an import waits for that."""
    assert [each for each in AMS.rglob("*.py") if "sys.modules" in each.read_text()] == []
