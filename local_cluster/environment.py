"""Copies of the Python environment of Spark's tasks, as `pip install 'argo-messaging[spark]'` makes it."""

import os
import shutil
import sys
import tomllib
import venv
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

SOURCES = Path(__file__).parents[1] / "src"
PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
PACKAGES = ("ams", "pyspark_ams")
"""Contents of this project's wheel."""
PROJECT = "argo-messaging"


def make_environment(folder: Path) -> Path:
    """Make a virtual environment that shares no path with this one, and return its Python.

    Files of other projects are hard links where possible: it takes a second and no disk space.
    """
    venv.EnvBuilder(symlinks=True).create(folder)
    packages = site_packages(folder)
    for package in PACKAGES:
        shutil.copytree(SOURCES / package, packages / package, ignore=shutil.ignore_patterns("__pycache__"))
    for found in _needed_distributions(Requirement(f"{PROJECT}[spark]")):
        _install(found, packages)
    return folder / "bin" / "python3"


def site_packages(environment: Path) -> Path:
    """Return the folder of an environment's packages."""
    return environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _needed_distributions(wanted: Requirement, seen: set[tuple[str, str]] | None = None) -> Iterator[Distribution]:
    """Yield the installed distributions of a requirement: itself, unless it is this project, and its dependencies."""
    seen = set() if seen is None else seen
    extras = wanted.extras or {""}
    new = {(wanted.name.lower(), extra) for extra in extras} - seen
    if not new:
        return
    seen |= new
    if wanted.name == PROJECT:
        requires = _required_packages(extras)
    else:
        try:
            found = distribution(wanted.name)
        except PackageNotFoundError:  # for another system or Python
            return
        yield found
        requires = found.requires or ()
    for text in requires:
        asked = Requirement(text)
        if asked.marker is None or any(asked.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            yield from _needed_distributions(asked, seen)


def _required_packages(extras: Iterable[str]) -> Sequence[str]:
    """Return this project's requirements from its sources; installed metadata may be outdated."""
    told = tomllib.loads(PYPROJECT.read_text())["project"]
    return [*told["dependencies"], *(each for extra in extras for each in told["optional-dependencies"].get(extra, ()))]


def _install(found: Distribution, packages: Path) -> None:
    for file in found.files or ():
        if ".." in file.parts:  # a program, which tasks do not need
            continue
        target = packages / file
        source = os.path.realpath(str(found.locate_file(file)))
        if target.exists() or not os.path.exists(source):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)
