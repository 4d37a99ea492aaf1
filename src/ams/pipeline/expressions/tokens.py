"""Text into tokens: the first of the places where what is not known is refused."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from ams.pipeline.errors import PipelineError

MAX_LENGTH = 2000
"""Characters of an expression."""


class WrongExpression(PipelineError):
    """An expression that cannot be; `position` is the character it goes wrong at, from 1."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at character {position}: {reason}")
        self.position = position
        self.reason = reason


class Kind(StrEnum):
    """What a token is."""

    NUMBER = "number"
    TEXT = "text"
    WORD = "word"
    SIGN = "sign"
    END = "end"


class Token(NamedTuple):
    """A word, a sign or a value, and where it begins (from 1)."""

    kind: Kind
    text: str
    position: int


_TOKEN = re.compile(
    r"""
    (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>->|==|!=|<=|>=|&&|\|\||[-+*/%<>()\[\],.=!])
    """,
    re.VERBOSE | re.ASCII,
)
_BLANK = re.compile(r"[ \t\r\n]*")

_ADVICE = {
    "->": "there are no lambdas",
    "=": "compare with ==",
    "!": "write not",
    "&&": "write and",
    "||": "write or; texts are joined by concat(...)",
    ";": "one expression is expected, without ;",
    "`": "names are written without back quotes",
    "{": "there are no templates here: write the name of the column",
    "$": "there are no variables here: write the name of the column",
    "'": "this text has no end",
    '"': "this text has no end",
}


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of an expression, `END` last; raise `WrongExpression` for what is none."""
    if len(text) > MAX_LENGTH:
        raise WrongExpression(MAX_LENGTH, f"longer than {MAX_LENGTH} characters")
    place = _after_blanks(text, 0)
    while place < len(text):
        found = _TOKEN.match(text, place)
        word = found.group() if found else text[place]
        if found is None or word in _ADVICE:
            raise WrongExpression(place + 1, _ADVICE.get(word, f"{word!r} means nothing here"))
        kind = Kind(str(found.lastgroup))
        yield Token(kind, _unquoted(word) if kind is Kind.TEXT else word, place + 1)
        place = _after_blanks(text, found.end())
    yield Token(Kind.END, "the end", len(text) + 1)


def _after_blanks(text: str, place: int) -> int:
    blanks = _BLANK.match(text, place)
    return blanks.end() if blanks else place


def _unquoted(literal: str) -> str:
    quote = literal[0]
    return literal[1:-1].replace(quote * 2, quote)
