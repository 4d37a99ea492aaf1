"""Tokens into a tree, by the strength with which signs bind (a Pratt parser).

From the weakest to the strongest: `or`; `and`; `not`; `== != < <= > >=`, `in`, `is`; `+ -`; `* / %`; `-x`; `x.y x[y]`.
Comparisons are not chained: `a < b < c` is refused.
"""

from ams.pipeline.expressions.tokens import Kind, Token, WrongExpression, tokens
from ams.pipeline.expressions.tree import Binary, Call, Column, Field, IsNull, Item, Literal, Node, OneOf, Unary

MAX_DEPTH = 40
"""Levels of brackets, signs and calls."""
MAX_SIGNS = 200
"""Signs between values, and items and fields of them: each makes the tree a level deeper at most."""

_NOT, _COMPARING, _MINUS, _INSIDE = 3, 4, 7, 8
_STRENGTH = {"or": 1, "and": 2, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6, ".": _INSIDE, "[": _INSIDE}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_STRENGTH |= dict.fromkeys((*_COMPARISONS, "in", "is", "not"), _COMPARING)
_CONSTANTS = {"true": True, "false": False, "null": None}
_WORDS = {"and", "or", "not", "in", "is", *_CONSTANTS}
_HIGHEST = 2**63 - 1


def parse(text: str) -> Node:
    """Read an expression; raise `WrongExpression` with the character it goes wrong at."""
    reading = _Parser(list(tokens(text)))
    node = reading.expression(0)
    reading.expect_end()
    return node


class _Parser:
    """Reads tokens from left to right and looks at most one ahead."""

    def __init__(self, read: list[Token]) -> None:
        self._tokens = read
        self._place = 0
        self._depth = 0
        self._signs = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _take(self) -> Token:
        token = self._next
        self._place += 1
        return token

    def _is(self, text: str) -> bool:
        return self._next.text == text and self._next.kind in (Kind.SIGN, Kind.WORD)

    def _expect(self, text: str) -> Token:
        if not self._is(text):
            raise WrongExpression(self._next.position, f"{text!r} is expected here, not {_shown(self._next)}")
        return self._take()

    def expect_end(self) -> None:
        """Refuse anything that is left over."""
        if self._next.kind is not Kind.END:
            raise WrongExpression(self._next.position, f"{_shown(self._next)} is not expected here")

    def expression(self, weakest: int) -> Node:
        """Read as far as signs bind more strongly than `weakest`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise WrongExpression(self._next.position, f"deeper than {MAX_DEPTH} levels")
        node = self._first()
        for _ in range(len(self._tokens)):
            strength = self._strength()
            if strength <= weakest:
                break
            node = self._more(node, strength)
        self._depth -= 1
        return node

    def _strength(self) -> int:
        return _STRENGTH.get(self._next.text, 0) if self._next.kind in (Kind.SIGN, Kind.WORD) else 0

    def _first(self) -> Node:
        """Read what can begin an expression."""
        token = self._take()
        if token.kind is Kind.NUMBER:
            return Literal(_number(token), token.position)
        if token.kind is Kind.TEXT:
            return Literal(token.text, token.position)
        if token.kind is Kind.WORD:
            return self._word(token)
        if token.text == "(" and token.kind is Kind.SIGN:
            inner = self.expression(0)
            self._expect(")")
            return inner
        if token.text == "-" and token.kind is Kind.SIGN:
            return Unary("-", self.expression(_MINUS), token.position)
        raise WrongExpression(token.position, f"a value is expected here, not {_shown(token)}")

    def _word(self, token: Token) -> Node:
        if token.text in _CONSTANTS:
            return Literal(_CONSTANTS[token.text], token.position)
        if token.text == "not":
            return Unary("not", self.expression(_NOT), token.position)
        if token.text in _WORDS:
            raise WrongExpression(token.position, f"a value is expected here, not {_shown(token)}")
        if self._is("("):
            return Call(token.text, self._listed(), token.position)
        return Column(token.text, token.position)

    def _more(self, left: Node, strength: int) -> Node:
        """Read what follows a value and binds with `strength`."""
        token = self._take()
        self._signs += 1
        if self._signs > MAX_SIGNS:
            raise WrongExpression(token.position, f"more than {MAX_SIGNS} signs")
        if token.text == ".":
            return Field(left, self._name(), token.position)
        if token.text == "[":
            key = self.expression(0)
            self._expect("]")
            return Item(left, key, token.position)
        node = self._comparison(left, token) if strength == _COMPARING else None
        if node is None:
            return Binary(token.text, left, self.expression(strength), token.position)
        if self._strength() == _COMPARING:
            raise WrongExpression(self._next.position, "comparisons are not chained: use and, or brackets")
        return node

    def _comparison(self, left: Node, token: Token) -> Node:
        if token.text == "is":
            return self._is_null(left, token)
        if token.text == "in":
            return OneOf(left, self._options(), token.position)
        if token.text == "not":
            self._expect("in")
            return Unary("not", OneOf(left, self._options(), token.position), token.position)
        return Binary(token.text, left, self.expression(_COMPARING), token.position)

    def _is_null(self, left: Node, token: Token) -> Node:
        negated = self._is("not")
        if negated:
            self._take()
        self._expect("null")
        node = IsNull(left, token.position)
        return Unary("not", node, token.position) if negated else node

    def _options(self) -> tuple[Node, ...]:
        position = self._next.position
        options = self._listed()
        if not options:
            raise WrongExpression(position, "at least one value is expected in the brackets")
        return options

    def _listed(self) -> tuple[Node, ...]:
        """Read `(a, b, ...)`."""
        self._expect("(")
        found: list[Node] = []
        while not self._is(")"):
            if found:
                self._expect(",")
            found.append(self.expression(0))
        self._expect(")")
        return tuple(found)

    def _name(self) -> str:
        token = self._take()
        if token.kind is not Kind.WORD:
            raise WrongExpression(token.position, f"the name of a field is expected here, not {_shown(token)}")
        return token.text


def _number(token: Token) -> int | float:
    if token.text.isdigit():
        value = int(token.text)
        if value > _HIGHEST:
            raise WrongExpression(token.position, "a whole number has at most 63 bits")
        return value
    number = float(token.text)
    if number == float("inf"):
        raise WrongExpression(token.position, "this number is too large")
    return number


def _shown(token: Token) -> str:
    return token.text if token.kind is Kind.END else repr(token.text[:40])
