"""The import contracts of pyproject.toml speak of every module there is."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
MODULES = {
    "ams." + each.stem
    for each in (ROOT / "src" / "ams").iterdir()
    if (each / "__init__.py").exists() or (each.suffix == ".py" and each.stem != "__init__")
}


def test_every_module_has_its_layer() -> None:
    [layers] = [each["layers"] for each in CONTRACTS if each["name"] == "imports run one way"]
    named = [name.strip() for layer in layers for name in layer.split("|")]

    assert sorted(named) == sorted(MODULES)


def test_the_client_may_import_nothing_else_of_ours() -> None:
    [contract] = [each for each in CONTRACTS if each["name"] == "the client depends on the wire only"]

    assert contract["source_modules"] == ["ams.client"]
    assert set(contract["forbidden_modules"]) == MODULES - {"ams.client"}
