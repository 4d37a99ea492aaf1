r"""Filters of parallel subscriptions: which messages are delivered, by their attributes alone.

    expr    = unary { "AND" unary } | unary { "OR" unary }       both in one level need parentheses
    unary   = [ "NOT" | "-" ] ( "(" expr ")" | test )
    test    = "attributes" ":" KEY                               the attribute is there
            | "attributes" "." KEY ( "=" | "!=" ) STRING
            | "hasPrefix" "(" "attributes" "." KEY "," STRING ")"
    KEY     = letters, digits, _ and -, or STRING
    STRING  = text in double quotes, with \" \\ \n \uXXXX \xHH \OOO (three octal digits)

Keywords are case-sensitive. Blanks may stand between all parts. For an absent attribute `!=` is true and `hasPrefix`
is false.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ams.core.errors import InvalidInput, refuse_if

MAX_BYTES = 256  # of a filter's text in UTF-8
TOO_LONG = f"Invalid filter: it has more than {MAX_BYTES} bytes"

Attributes = Mapping[str, str]

_BLANKS = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN = re.compile(r'[^"\\]+')  # part of a string without escapes
_ESCAPE = re.compile(r'\\(?:(["\\n])|u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|([0-3][0-7]{2}))')
_ONE_LETTER = {'"': '"', "\\": "\\", "n": "\n"}

Filter = Callable[[Attributes], bool]  # whether a message with these attributes is delivered


@dataclass(frozen=True, slots=True)
class _Not:
    test: Filter

    def __call__(self, attributes: Attributes) -> bool:
        return not self.test(attributes)


def _equals(key: str, value: str) -> Filter:
    return lambda attributes: attributes.get(key) == value


def _combine(tests: Sequence[Filter], decisive: bool) -> Filter:
    def combined(attributes: Attributes) -> bool:
        for each in tests:  # `all` and `any` take twice as long, for each message of a topic
            if each(attributes) is decisive:
                return decisive
        return not decisive

    return combined


def parse(text: str) -> Filter:
    """Parse a filter. Raises `InvalidInput` with the position, from 1, and what was expected there."""
    refuse_if(len(text.encode(errors="replace")) > MAX_BYTES, TOO_LONG)
    return _Parser(text).expression()


_DECISIVE = {"AND": False, "OR": True}  # the result of one test that decides, by the word between them


def _negate(test: Filter) -> Filter:
    """Return the opposite; a double NOT is dropped, so the call depth of a filter is bounded by the number of tests."""
    return test.test if isinstance(test, _Not) else _Not(test)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def expression(self, *, is_inner: bool = False) -> Filter:
        """Parse up to the end, or an inner expression up to its closing parenthesis."""
        tests, joined_by = [self._unary()], ""
        while not (self._skip(")") if is_inner else self._next() == len(self._text)):
            start = self._next()
            word = next((each for each in _DECISIVE if self._skip_word(each)), None)
            if word is None:
                self._fail(start, 'AND, OR or ")"' if is_inner else "AND, OR or the end")
            if joined_by not in ("", word):
                self._fail(start, "parentheses around AND or OR where both are used")
            joined_by = word
            tests.append(self._unary())
        return _combine(tests, _DECISIVE[joined_by]) if joined_by else tests[0]

    def _unary(self) -> Filter:
        is_negated = self._skip("-") or self._skip_word("NOT")
        test = self.expression(is_inner=True) if self._skip("(") else self._test()
        return _negate(test) if is_negated else test

    def _test(self) -> Filter:
        start, word = self._next(), self._word()
        if word == "hasPrefix":
            self._expect("(")
            start = self._next()
            if self._word() != "attributes":
                self._fail(start, "attributes")
            self._expect(".")
            key = self._key()
            self._expect(",")
            prefix = self._string("a string in double quotes")
            self._expect(")")
            return lambda attributes: key in attributes and attributes[key].startswith(prefix)
        if word != "attributes":
            self._fail(start, 'NOT, "(", attributes or hasPrefix')
        if self._skip(":"):
            key = self._key()
            return lambda attributes: key in attributes
        if not self._skip("."):
            self._fail(self._next(), '":" or "." after attributes')
        key = self._key()
        is_negated = self._skip("!=")
        if not is_negated and not self._skip("="):
            self._fail(self._next(), '"=" or "!="')
        value = self._string("a string in double quotes")
        return _Not(_equals(key, value)) if is_negated else _equals(key, value)

    def _key(self) -> str:
        return self._word() or self._string("a key: letters, digits, _ and -, or a string in double quotes")

    def _string(self, expected: str) -> str:
        start = self._next()
        if not self._skip('"'):
            self._fail(start, expected)
        parts: list[str] = []
        while not self._text.startswith('"', self._at):
            if self._at == len(self._text):
                self._fail(self._at, "a double quote at the end of the string")
            found = _PLAIN.match(self._text, self._at)
            parts.append(found[0] if found else self._read_escape())
            self._at += len(found[0]) if found else 0
        self._at += 1
        return "".join(parts)

    def _read_escape(self) -> str:
        start, found = self._at, _ESCAPE.match(self._text, self._at)
        if found is None:
            self._fail(start, r"\", \\, \n, \uXXXX, \xHH or \OOO")
        self._at = found.end()
        if found[1]:
            return _ONE_LETTER[found[1]]
        code = int(found[4], 8) if found[4] else int(found[2] or found[3], 16)
        if 0xD800 <= code <= 0xDFFF:
            self._fail(start, "a character: this is half of one")
        return chr(code)

    def _next(self) -> int:
        blanks = _BLANKS.match(self._text, self._at)
        assert blanks is not None
        self._at = blanks.end()
        return self._at

    def _word(self) -> str:
        found = _WORD.match(self._text, self._next())
        if found is None:
            return ""
        self._at = found.end()
        return found[0]

    def _skip(self, part: str) -> bool:
        if not self._text.startswith(part, self._next()):
            return False
        self._at += len(part)
        return True

    def _skip_word(self, word: str) -> bool:
        start = self._next()
        if self._word() == word:
            return True
        self._at = start
        return False

    def _expect(self, part: str) -> None:
        if not self._skip(part):
            self._fail(self._at, f'"{part}"')

    def _fail(self, at: int, expected: str) -> NoReturn:
        raise InvalidInput(f"Invalid filter at character {at + 1}: expected {expected}")
