"""Validates the names, arguments and types of a tree of SQL, and builds its Spark column node by node."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType
from sqlglot import exp

from ams.pipeline.expressions import functions as known
from ams.pipeline.expressions import types
from ams.pipeline.expressions.functions import COMPARISONS, OPERATORS, Expression, Function
from ams.pipeline.expressions.parser import WrongExpression, parse, position_of
from ams.pipeline.expressions.types import BIGINT, BINARY, BOOLEAN, DOUBLE, NULL, STRING, type_text

Columns = Mapping[str, DataType]

_MAX_LISTED_NAMES = 12  # names in an error
_HIGHEST = 2**63 - 1


class _Scope(NamedTuple):
    columns: Columns
    rows: Columns | None = None  # in an aggregation: the columns of the rows of a key, for arguments of aggregates


def expression(text: str, columns: Columns) -> Expression:
    """Read an expression over columns. Raises `WrongExpression` with the position."""
    return _check_node(parse(text), _Scope(columns))


def aggregate(text: str, rows: Columns, keys: Iterable[str]) -> Expression:
    """Read an aggregate over the rows of each key. Raises `WrongExpression` with the position."""
    return _check_node(parse(text), _Scope({name: rows[name] for name in keys}, rows))


def hint(name: str, known: Iterable[str], otherwise: Mapping[str, str] | None = None) -> str:
    """Return the names closest to `name`, or all known names."""
    if otherwise and name.lower() in otherwise:
        return f"write {otherwise[name.lower()]}"
    names = sorted(known)
    if near := get_close_matches(name, names, n=1):
        return f"did you mean {near[0]}?"
    more = ", ..." if len(names) > _MAX_LISTED_NAMES else ""
    return f"there are {', '.join(names[:_MAX_LISTED_NAMES])}{more}" if names else "there are none"


def _check_node(node: exp.Expr, scope: _Scope) -> Expression:
    rule = _RULES.get(type(node))
    if rule is None:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()
        raise _wrong(node, f"{name} is not taken here")
    return rule(node, scope)


def _wrong(node: exp.Expr, reason: str) -> WrongExpression:
    return WrongExpression(position_of(node), reason)


def _literal(node: exp.Literal, _: _Scope) -> Expression:
    if node.is_string:
        return Expression(STRING, lambda: F.lit(node.name), node.name)
    if node.name.isdecimal():
        whole = int(node.name)
        if whole > _HIGHEST:
            raise _wrong(node, "a whole number has at most 63 bits")
        return Expression(BIGINT, lambda: F.lit(whole).cast("bigint"), whole)
    number = float(node.name)
    if math.isinf(number):
        raise _wrong(node, "this number is too large")
    return Expression(DOUBLE, lambda: F.lit(number), number)


def _column(node: exp.Column, scope: _Scope) -> Expression:
    first, *fields = node.parts
    name = first.name
    if name not in scope.columns:
        if scope.rows is not None and name in scope.rows:
            raise _wrong(first, f"{name!r} is no key: it stands in a function over rows, such as max({name})")
        if name[:1].isdigit():
            raise _wrong(first, f"{name[:40]!r} is no number; they are written as 1, 1.5 or 1e3")
        raise _wrong(first, f"no column {name!r}; {hint(name, scope.columns)}")
    kind = scope.columns[name]
    # A column that is always null is stored as text.
    found = Expression(kind, lambda: F.lit(None) if kind == NULL else F.col(f"`{name}`"))
    for each in fields:
        found = _field(found, each)
    return found


def _dot(node: exp.Dot, scope: _Scope) -> Expression:
    if isinstance(node.expression, exp.Anonymous):
        raise _wrong(node.expression, "the name of a field is expected behind the point")
    return _field(_check_node(node.this, scope), node.expression)


def _field(of: Expression, name: exp.Expr) -> Expression:
    if not isinstance(name, exp.Identifier):
        raise _wrong(name, "the name of a field is expected behind the point")
    if not isinstance(of.type, StructType):
        advice = f"; write ['{name.name}']" if isinstance(of.type, MapType) else ""
        raise _wrong(name, f"{type_text(of.type)} has no fields{advice}")
    if name.name not in of.type.names:
        raise _wrong(name, f"no field {name.name!r}; {hint(name.name, of.type.names)}")
    return Expression(of.type[name.name].dataType, lambda: of.column().getField(name.name))


def _item(node: exp.Bracket, scope: _Scope) -> Expression:
    [of, *keys] = (_check_node(each, scope) for each in (node.this, *node.expressions))
    if not isinstance(of.type, ArrayType | MapType) or len(keys) != 1:
        raise _wrong(node, f"one item of an array or a map is asked for in [ ], not of {type_text(of.type)}")
    [key], wanted = keys, BIGINT if isinstance(of.type, ArrayType) else STRING
    if not types.fits(key.type, wanted):
        raise _wrong(node.expressions[0], f"items are asked for by {type_text(wanted)}, not {type_text(key.type)}")
    if isinstance(of.type, MapType):
        return Expression(of.type.valueType, lambda: F.try_element_at(of.column(), key.column()))
    kind = of.type.elementType  # an index outside the array gives null; one beyond all arrays must not overflow
    return Expression(kind, lambda: F.get(of.column(), F.coalesce(key.column().try_cast("int"), F.lit(-1))))


def _operator(node: exp.Expr, scope: _Scope) -> Expression:
    given = [node.this, node.expression] if isinstance(node, exp.Binary) else [node.this]
    return _apply(node, *OPERATORS[type(node)], given, scope)


def _comparison(node: exp.Binary, scope: _Scope) -> Expression:
    left, right = _check_node(node.this, scope), _check_node(node.expression, scope)
    _check_compared(node, left, right)
    return Expression(BOOLEAN, lambda: COMPARISONS[type(node)](left.column(), right.column()))


def _check_compared(node: exp.Expr, left: Expression, right: Expression) -> None:
    both = types.common([left.type, right.type])
    if both is None:
        names = {type_text(left.type), type_text(right.type)} - {"string"}
        advice = f"; cast(... as {min(names)}) makes one of text" if len(names) == 1 and names <= {*types.WORDS} else ""
        raise _wrong(node, f"{type_text(left.type)} is not compared with {type_text(right.type)}{advice}")
    if not types.is_ordered(both) and not (isinstance(node, _EQUAL) and both == BINARY):
        raise _wrong(node, f"{type_text(both)} cannot be compared")


def _between(node: exp.Between, scope: _Scope) -> Expression:
    if node.args.get("symmetric") is not None:
        raise _wrong(node, "BETWEEN is written without SYMMETRIC")
    least = exp.GTE(this=node.this, expression=node.args["low"])
    most = exp.LTE(this=node.this, expression=node.args["high"])
    return _check_node(exp.And(this=least, expression=most), scope)


def _in(node: exp.In, scope: _Scope) -> Expression:
    of, options = _check_node(node.this, scope), [_check_node(each, scope) for each in node.expressions]
    if not options:
        raise _wrong(node, "at least one value is expected in the brackets")
    for place, option in zip(node.expressions, options, strict=True):
        _check_compared(place, of, option)
    return Expression(BOOLEAN, lambda: of.column().isin(*(each.column() for each in options)))


def _is(node: exp.Is, scope: _Scope) -> Expression:
    of, said = _check_node(node.this, scope), node.expression
    if isinstance(said, exp.Null):
        return Expression(BOOLEAN, lambda: of.column().isNull())
    if not isinstance(said, exp.Boolean) or not types.fits(of.type, BOOLEAN):
        raise _wrong(said, "IS NULL, or IS TRUE and IS FALSE of boolean, is expected here")
    return Expression(BOOLEAN, lambda: of.column().eqNullSafe(bool(said.this)))


def _case(node: exp.Case, scope: _Scope) -> Expression:
    given: list[exp.Expr] = []
    for branch in node.args["ifs"]:
        test = exp.EQ(this=node.this, expression=branch.this) if node.this else branch.this
        given += [test, branch.args["true"]]
    given.append(node.args.get("default") or exp.Null())
    return _apply(node, "CASE", known.choice(len(given) // 2), given, scope)


def _cast(node: exp.Cast, scope: _Scope) -> Expression:
    name = str(node.to.args.get("kind") or node.to.this.value).lower()
    if node.to.expressions or name not in types.WORDS:
        raise _wrong(node, f"no type {name!r} here; {hint(name, types.WORDS, types.OTHER_NAMES)}")
    return _as(types.WORDS[name], node.this, scope)


def _as(wanted: DataType, node: exp.Expr, scope: _Scope) -> Expression:
    of = _check_node(node, scope)
    if of.type not in (wanted, *known.CASTS[wanted]):
        raise _wrong(node, f"{type_text(of.type)} cannot be cast as {type_text(wanted)}")
    return Expression(wanted, lambda: known.cast(of.column(), of.type, wanted))


def _call(node: exp.Anonymous, scope: _Scope) -> Expression:
    name = node.name.lower()
    if name in known.AGGREGATES:
        if scope.rows is None:
            advice = "it is for the step aggregate, and not within another such function"
            raise _wrong(node, f"{name} is over rows: {advice}")
        given, inside = node.expressions, _Scope(scope.rows)
        if name == "count":
            if not given:
                raise _wrong(node, "rows are counted by count(*)")
            if len(given) == 1 and isinstance(given[0], exp.Star):
                return Expression(BIGINT, lambda: F.count(F.lit(1)))
            if len(given) == 1 and isinstance(given[0], exp.Distinct):
                return _apply(node, "count(DISTINCT ...)", known.DISTINCT, given[0].expressions, inside)
        return _apply(node, name, known.AGGREGATES[name], given, inside)
    if name in known.CASTING and len(node.expressions) == 1:
        return _as(known.CASTING[name], node.expressions[0], scope)
    if name not in known.FUNCTIONS:
        meant = hint(name, (*known.FUNCTIONS, *known.CASTING), known.OTHER_NAMES)
        raise _wrong(node, f"no function {node.name!r}; {meant}")
    return _apply(node, name, known.FUNCTIONS[name], node.expressions, scope)


def _apply(node: exp.Expr, name: str, function: Function, given: Sequence[exp.Expr], scope: _Scope) -> Expression:
    kinds = function.kinds(len(given))
    if kinds is None:
        raise _wrong(node, f"{name} takes ({function.takes}), not {len(given)} arguments")
    arguments = [_check_node(each, scope) for each in given]
    for place, argument, kind in zip(given, arguments, kinds, strict=True):
        if reason := known.refusal(argument, kind):
            advice = "; texts are joined by ||" if name == "+" and argument.type == STRING else ""
            raise _wrong(place, f"{name} needs {reason}{advice}")
    gives = function.gives
    result = gives if isinstance(gives, DataType) else gives([each.type for each in arguments])
    if result is None:
        told = ", ".join(type_text(each.type) for each in arguments)
        raise _wrong(node, f"the arguments of {name} do not go together: {told}")
    kept = STRING if result == NULL else result
    return Expression(result, lambda: function.build(*map(known.builder_argument, arguments, kinds)).cast(kept))


_EQUAL = (exp.EQ, exp.NEQ, exp.NullSafeEQ)
_RULES: Mapping[type[exp.Expr], Callable[[Any, _Scope], Expression]] = {
    exp.Literal: _literal,
    exp.Boolean: lambda node, _: Expression(BOOLEAN, lambda: F.lit(bool(node.this)), bool(node.this)),
    exp.Null: lambda *_: Expression(NULL, lambda: F.lit(None)),
    exp.Column: _column,
    exp.Dot: _dot,
    exp.Bracket: _item,
    exp.Paren: lambda node, scope: _check_node(node.this, scope),
    **dict.fromkeys(OPERATORS, _operator),
    **dict.fromkeys(COMPARISONS, _comparison),
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.Case: _case,
    **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
    exp.Anonymous: _call,
}
