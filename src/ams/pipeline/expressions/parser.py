"""Parses text with sqlglot: Spark's SQL, limited to expressions.

Keywords outside expressions are column names here. No function is known to the parser: only
`ams.pipeline.expressions.functions` decides. So sqlglot rewrites nothing, and its new features cannot slip in: tokens
and nodes (`ams.pipeline.expressions.validation`) are on allow-lists.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from ams.pipeline.errors import PipelineError

MAX_LENGTH = 4000  # characters of an expression
MAX_DEPTH = 20  # nested brackets and CASE: sqlglot uses about 25 stack frames for each
MAX_LEVELS = 120  # levels of the tree; each operator of a chain is one
MAX_WEIGHT = 5_000
"""Nodes of the resulting Spark column; some nodes copy an argument several times. Spark needs seconds at most."""


class WrongExpression(PipelineError):
    """An invalid expression; `position` is the character of the error, from 1."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at character {position}: {reason}")
        self.position, self.reason = position, reason


_WORDS: Final = (
    *("AND", "OR", "NOT", "IN", "IS", "NULL", "TRUE", "FALSE", "BETWEEN"),
    *("CASE", "WHEN", "THEN", "ELSE", "END", "AS", "DISTINCT"),
)
_SIGNS: Final = ("=", "==", "!=", "<>", "<=>", "<", "<=", ">", ">=", "||", *"+-*/%()[],.!")
_SPARKS: Final = {**Spark.Tokenizer.SINGLE_TOKENS, **Spark.Tokenizer.KEYWORDS, "AS": TokenType.ALIAS}
_KEYWORDS: Final = {each: _SPARKS[each] for each in (*_WORDS, *_SIGNS)}
_VALUES: Final = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER}
_ALLOWED: Final = {*_KEYWORDS.values(), *_VALUES}
_NODES: Final[Mapping[str, tuple[type[exp.Expr], ...]]] = {
    "AND": (exp.And, exp.Between),
    "OR": (exp.Or,),
    "NOT": (exp.Not,),
    "IN": (exp.In,),
    "IS": (exp.Is, exp.NullSafeNEQ),
    "BETWEEN": (exp.Between,),
    **dict.fromkeys(("WHEN", "THEN"), (exp.If,)),
    "AS": (exp.Cast,),
    "DISTINCT": (exp.Distinct, exp.NullSafeNEQ),
}
_SAME_AS: Final = dict.fromkeys((TokenType.DATE, TokenType.TIMESTAMP), TokenType.ALIAS)  # types before a text
_COPIES: Final[Mapping[type[exp.Expr], int]] = {exp.Between: 2, exp.Cast: 6, exp.TryCast: 6}
_COPIES_OF: Final = dict.fromkeys(("to_date", "to_timestamp", "timestamp_seconds", "abs", "size"), 6)
"""How many copies of an argument nodes and functions make at most."""
_OPENING: Final = {TokenType.L_PAREN, TokenType.L_BRACKET}
_CLOSING: Final = {TokenType.R_PAREN, TokenType.R_BRACKET}
_ADVICE: Final = {
    ";": "one expression is expected, without ;",
    "::": "write cast(... as TYPE)",
    "->": "there are no lambdas",
    "=>": "arguments have no names",
    "&&": "write AND",
    **dict.fromkeys("{}", "there are no templates here: write the name of the column"),
    **dict.fromkeys("$@:?", "there are no parameters here: write the name of the column"),
    **dict.fromkeys("&|^~", "there are no operations on bits"),
}
_NO_PATTERNS = "there are no patterns: contains, startswith and endswith look for text"
_NOT_TAKEN: Final = {  # SQL words that may also be column names; named when a text cannot be parsed
    **dict.fromkeys(("SELECT", "FROM", "EXISTS", "WITH", "UNION"), "there are no subqueries"),
    **dict.fromkeys(("OVER", "PARTITION"), "there are no window functions"),
    **dict.fromkeys(("LIKE", "ILIKE", "RLIKE", "REGEXP"), _NO_PATTERNS),
    "DIV": "write floor(a / b)",
    "INTERVAL": "there are no intervals",
    "FILTER": "write if(..., x, null) in the brackets",
}


class _Cut(Spark):
    """Spark's SQL without statements, queries, functions that it knows, and literals with letters."""

    SUPPORTS_USER_DEFINED_TYPES = True  # keeps the name of a type as written

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS: ClassVar = {**_KEYWORDS, **dict.fromkeys(("::", "->", "=>", "&&"), TokenType.UNKNOWN)}
        STRING_ESCAPES: ClassVar = ["\\", "'", '"']
        NUMERIC_LITERALS: ClassVar = {}
        HEX_STRINGS: ClassVar = []
        RAW_STRINGS: ClassVar = []
        COMMANDS: ClassVar = set()

    class Parser(SparkParser):
        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {each: SparkParser.FUNCTION_PARSERS[each] for each in ("CAST", "TRY_CAST")}
        NO_PAREN_FUNCTIONS: ClassVar = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}
        UNARY_PARSERS: ClassVar = {each: SparkParser.UNARY_PARSERS[each] for each in (TokenType.NOT, TokenType.DASH)}
        ARRAY_CONSTRUCTORS: ClassVar = {}

        def expression(self, instance: Any, token: Any = None, comments: Any = None) -> Any:
            """Give words that are values their place too, as sqlglot gives it to names and numbers."""
            at = self._prev if isinstance(instance, exp.Boolean | exp.Null) else token
            return super().expression(instance, at, comments)


_DIALECT = _Cut()


def parse(text: str) -> exp.Expr:
    """Read an expression; raise `WrongExpression` with the character it goes wrong at."""
    if len(text) > MAX_LENGTH:
        raise WrongExpression(MAX_LENGTH, f"longer than {MAX_LENGTH} characters")
    tokens = _tokens(text)
    try:
        trees = _DIALECT.parser(error_level=ErrorLevel.IMMEDIATE).parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise _refusal(error, tokens) from None
    except Exception as error:  # whatever a parser does with text that it does not expect
        raise WrongExpression(1, f"this cannot be read as SQL: {type(error).__name__}") from None
    tree = trees[0] if len(trees) == 1 else None
    if tree is None:
        raise WrongExpression(1, "an expression is expected here")
    _check_size(tree)
    _check_words(tree, tokens)
    return tree


def position_of(node: exp.Expr) -> int:
    """Return the character that a node begins at, from 1; that of its first leaf, as far as it is known."""
    return min((each.meta["start"] for each in node.walk() if "start" in each.meta), default=0) + 1


def _tokens(text: str) -> list[Token]:
    try:
        tokens = _DIALECT.tokenize(text)
    except TokenError as error:
        begun = re.search(r":(\d+)$", str(error.__cause__))
        place = int(begun[1]) + 1 if begun else 1
        raise WrongExpression(min(place, len(text)), "a text or a name in quotes has no end") from None
    if not tokens:
        raise WrongExpression(1, "an expression is expected here")
    inside: list[TokenType] = []
    for token in tokens:
        if token.comments:
            raise WrongExpression(token.start + 1, "comments stand in lines of YAML, behind #")
        if token.token_type not in _ALLOWED:
            raise WrongExpression(token.start + 1, _ADVICE.get(token.text, f"{token.text[:40]!r} means nothing here"))
        if token.token_type in (*_OPENING, TokenType.CASE):
            inside.append(token.token_type)
        elif inside and token.token_type in (TokenType.END if inside[-1] is TokenType.CASE else None, *_CLOSING):
            inside.pop()
        if len(inside) > MAX_DEPTH:
            raise WrongExpression(token.start + 1, f"deeper than {MAX_DEPTH} levels")
    for token, then in pairwise(tokens):
        _check_neighbours(token, then)
    return tokens


def _check_neighbours(token: Token, then: Token) -> None:
    """Refuse tokens that sqlglot would skip; mark `DATE '...'` and `TIMESTAMP '...'`."""
    kinds = (token.token_type, then.token_type)
    if kinds == (TokenType.STRING, TokenType.STRING):
        raise WrongExpression(then.start + 1, "two texts side by side are joined by ||")
    if (TokenType.COMMA in kinds and (kinds[0] in _OPENING or kinds[1] in _CLOSING)) or kinds == (TokenType.COMMA,) * 2:
        raise WrongExpression(then.start + 1, "a value is expected beside each comma")
    if kinds[0] is TokenType.IN and kinds[1] is not TokenType.L_PAREN:
        raise WrongExpression(then.start + 1, "( is expected behind IN")
    if kinds == (TokenType.VAR, TokenType.STRING) and token.text.upper() in ("DATE", "TIMESTAMP"):
        token.token_type = TokenType[token.text.upper()]


def _check_size(tree: exp.Expr) -> None:
    nodes, deep, weight = list(tree.bfs()), {id(None): 0}, {id(node): 1 for node in tree.bfs()}
    for node in nodes:
        deep[id(node)] = deep[id(node.parent)] + 1
        if deep[id(node)] > MAX_LEVELS:
            raise WrongExpression(position_of(node), f"more than {MAX_LEVELS} operators in a chain")
    for node in reversed(nodes):
        weight[id(node)] *= _copies(node)
        if weight[id(node)] > MAX_WEIGHT:
            raise WrongExpression(position_of(node), "too much for one expression: make columns of its parts before")
        if node.parent:
            weight[id(node.parent)] += weight[id(node)]


def _check_words(tree: exp.Expr, tokens: Sequence[Token]) -> None:
    """Refuse texts in which sqlglot drops or adds words: it accepts `BETWEEN 1 2` and `concat(a, AS)`."""
    written = Counter(_SAME_AS.get(token.token_type, token.token_type) for token in tokens)
    for word, nodes in _NODES.items():
        kind, found = _KEYWORDS[word], sum(1 for _ in tree.find_all(*nodes))
        if written[kind] < found:
            raise WrongExpression(position_of(tree), f"{word} is missing")
        if written[kind] > found:
            at = next(token for token in tokens if token.token_type is kind)
            reason = f"{word} means nothing here; a column of this name is written `{at.text}`"
            raise WrongExpression(at.start + 1, reason)


def _copies(node: exp.Expr) -> int:
    if isinstance(node, exp.Case):
        return len(node.args["ifs"]) if node.this else 1
    return _COPIES_OF.get(node.name.lower(), 1) if isinstance(node, exp.Anonymous) else _COPIES.get(type(node), 1)


def _refusal(error: ParseError, tokens: Sequence[Token]) -> WrongExpression:
    for token in tokens:
        if token.token_type is TokenType.VAR and token.text.upper() in _NOT_TAKEN:
            word = token.text.upper()
            return WrongExpression(token.start + 1, f"{word} is not taken: {_NOT_TAKEN[word]}")
    told = error.errors[0]
    at = next((each for each in tokens if (each.line, each.col) == (told["line"], told["col"])), tokens[-1])
    reason = str(told["description"])
    if "Unexpected token" in reason:
        return WrongExpression(at.start + 1, f"{at.text[:40]!r} is not expected here")
    if reason.startswith("Required"):
        reason = "a value is missing"
    return WrongExpression(at.start + 1, f"{reason[:1].lower()}{reason[1:]} beside {at.text[:40]!r}")
