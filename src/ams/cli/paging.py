"""Lists that come in pages (contract 4): one page, or all of them put together."""

from collections.abc import Callable
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
import typer

from ams.cli.command import Session
from ams.cli.exits import Usage
from ams.cli.output import note
from ams.client.wire import Call

PageSize = Annotated[int, typer.Option(min=0, help="So many at a time; 0: as many as there are.")]
PageToken = Annotated[str, typer.Option(metavar="TOKEN", help="Which page: what the one before said.")]
AllPages = Annotated[bool, typer.Option("--all", help="All pages, put together.")]

USUAL_SIZE = 1000
"""Items of one page when all are asked for and nobody says how many at a time."""


class Page(Protocol):
    """A list as the service answers it."""

    @property
    def next_page_token(self) -> str:
        """What asks for the next page; empty on the last."""


P = TypeVar("P", bound=Page)


def paged(session: Session, ask: Callable[[int, str], Call[P]], items: str, size: int, token: str, every: bool) -> P:
    """Return the page asked for, or every page as one; `items` is the field of the answer that holds the list.

    Says on stderr how to get the next page, unless the result is for programs, where it stands beside the list.
    """
    if every and token:
        raise Usage("give --page-token or --all, not both")
    page = session.call(ask(size or USUAL_SIZE if every else size, token))
    if every:
        return _with_the_rest(session, ask, items, size or USUAL_SIZE, page)
    if page.next_page_token and not session.for_programs:
        note(f"there is more: --page-token {page.next_page_token}")
    return page


def _with_the_rest(session: Session, ask: Callable[[int, str], Call[P]], items: str, size: int, page: P) -> P:
    found: list[Any] = list(getattr(page, items))
    while page.next_page_token:
        page = session.call(ask(size, page.next_page_token))
        found += getattr(page, items)
    return msgspec.structs.replace(page, **{items: found})  # type: ignore[type-var]  # every page is a Struct
