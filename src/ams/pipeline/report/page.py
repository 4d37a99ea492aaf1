"""One HTML page that stands alone: no script, nothing fetched, readable without its style."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with what it shows, said in words."""

    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Rows:
    """A table; numbers are set to the right, floats with two digits."""

    head: Sequence[str]
    body: Sequence[Sequence[Any]]
    caption: str = ""


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
    environment.filters["cell"] = _cell
    environment.filters["svg"] = _svg
    environment.tests["number"] = lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    return environment.get_template("page.html").render(title=title, lead=lead, sections=sections)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _svg(text: str) -> Markup:
    return Markup(text)  # noqa: S704  # drawn by `plots`, which escapes every label
