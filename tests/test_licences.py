"""Licences of all packages that the extras install, and of those in the console, as their metadata name them."""

import json
import re
import tomllib
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ACCEPTED = {"0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "MIT-CMU",
            "MPL-2.0", "PSF-2.0", "Unlicense", "ZPL-2.1", "Zlib"}  # fmt: skip
SPDX_NAMES = {
    "Apache Software License": "Apache-2.0", "BSD License": "BSD", "3-Clause BSD License": "BSD", "MIT License": "MIT",
    "ISC License (ISCL)": "ISC", "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}  # fmt: skip
LGPL = "LGPL-3.0-only: imported as an unchanged package of its own, which users may replace"
EXCEPTIONS = {"psycopg": LGPL, "psycopg-binary": LGPL}


def installed_licences() -> dict[str, list[str]]:
    waiting = [(each, "") for each in chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())]
    seen, licences = set[tuple[str, str]](), dict[str, list[str]]()
    while waiting:
        text, of_extra = waiting.pop()
        wanted = Requirement(text)
        if wanted.name == PROJECT["name"] or (wanted.marker and not wanted.marker.evaluate({"extra": of_extra})):
            continue
        for name, extra in {(canonicalize_name(wanted.name), extra) for extra in ("", *wanted.extras)} - seen:
            seen.add((name, extra))
            metadata = distribution(name).metadata
            waiting += [(each, extra) for each in metadata.get_all("Requires-Dist", [])]
            expression, classifiers = metadata.get("License-Expression"), metadata.get_all("Classifier", [])
            named = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::")]
            licences[name] = [expression] if expression else named or [metadata.get("License", "none")]
    return licences


def is_accepted(expression: str) -> bool:
    choices = (each.split(" AND ") for each in expression.split(" OR "))
    return any({SPDX_NAMES.get(name, name) for name in choice} <= ACCEPTED for choice in choices)


def test_every_licence_is_accepted_or_an_exception_with_a_reason() -> None:
    refused = {name: found for name, found in installed_licences().items() if not all(map(is_accepted, found))}
    assert refused == {name: [reason.partition(":")[0]] for name, reason in EXCEPTIONS.items()}


def test_packages_in_the_console_are_accepted_and_their_licences_shipped() -> None:
    packages = json.loads((ROOT / "console" / "package-lock.json").read_text())["packages"]
    used = {path: each for path, each in packages.items() if path and not each.get("dev", each.get("optional"))}
    shipped = re.findall("^==== (.*)$", (ROOT / "console" / "LICENSES.txt").read_text(), re.MULTILINE)
    named = [f"node_modules/{name}" for name in (*shipped, "esbuild")]  # esbuild only makes the files
    assert {path: is_accepted(each["license"]) for path, each in used.items()} == dict.fromkeys(named, True)
