"""Commands that pages and messages offer to people: each is one that there is, as it would be typed."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from ams.cli.main import COMMANDS, program

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "console" / "src").rglob("*.tsx")
MODULES = (path for path in (ROOT / "src" / "ams").rglob("*.py") if "cli" not in path.parts)
ON_PAGES = re.compile(r'`(?:[^`]*?: )?(ams [^`]*)`|"(ams [^"]*)"|<code>(ams [^<]*)</code>')
"""Of a whole template or text, of the end of one behind a colon, or of code."""
IN_TEXTS = re.compile(rf"`ams ((?:{'|'.join(map(re.escape, COMMANDS))})(?: [a-z][a-z-]+)*)")
"""The words before arguments and options."""


def lines_of_pages() -> Iterator[str]:
    for path in PAGES:
        for found in ON_PAGES.findall(re.sub(r"\$\{[^{}]*\}", "X", path.read_text())):
            yield next(filter(None, found))


LINES = sorted(set(lines_of_pages()))


@pytest.mark.parametrize("line", LINES)
def test_a_command_that_a_page_offers_can_be_typed(line: str) -> None:
    words = shlex.split(line)[1:]
    command = get_command(program([words[0]]))
    found, left = walked(command, words)
    assert not hasattr(found, "commands"), f"there is no {line!r}"
    if "--help" not in left:
        found.make_context(line, left)


@pytest.mark.parametrize("words", sorted({found for path in MODULES for found in IN_TEXTS.findall(path.read_text())}))
def test_a_command_that_a_text_names_is_there(words: str) -> None:
    first, *others = words.split()
    found, left = walked(get_command(program([first])), [first, *others])

    assert not (left and hasattr(found, "commands")), f"there is no `ams {words}`"


def walked(command: Any, words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that words name, and the words behind it."""
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def test_pages_offer_commands() -> None:
    assert len(LINES) >= 12
