"""One HTML page that stands alone: no script, nothing fetched, readable without its style."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ams.pipeline.report.text import cell, is_number, numeric


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot (of `plots`, which escapes every label) with what it shows, said in words."""

    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Rows:
    """A table; numbers are set to the right."""

    head: Sequence[str]
    body: Sequence[Sequence[Any]]
    caption: str = ""

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """The names of the columns, and whether each holds numbers."""
        return list(zip(self.head, numeric(self.head, self.body), strict=True))


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page."""

    title: str
    text: str = ""
    content: Sequence[Figure | Rows] = ()


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """Return the page; texts and cells are escaped, only the plots are taken as they are."""
    environment = Environment(
        loader=PackageLoader("ams.pipeline.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["cell"] = cell
    environment.tests["number"] = is_number
    return environment.get_template("page.html").render(title=title, lead=lead, sections=sections)


def put(path: Path, content: str) -> None:
    """Write a file in the place of the one before, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(content, encoding="utf-8")
    os.replace(beside, path)
