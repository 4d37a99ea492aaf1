"""Checked expressions as Spark columns: each node by a function of Spark, never through text."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from ams.pipeline.expressions import builders, tree
from ams.pipeline.expressions.checking import Columns, type_of
from ams.pipeline.expressions.functions import FUNCTIONS
from ams.pipeline.expressions.types import NULL, NUMBER


def column(node: tree.Node, columns: Columns) -> Column:
    """Return the Spark column of an expression over `columns`; raise `WrongExpression` for what cannot be."""
    type_of(node, columns)
    return _column(node, columns)


def _column(node: tree.Node, columns: Columns) -> Column:
    match node:
        case tree.Literal():
            return _literal(node)
        case tree.Column():
            return F.lit(None) if columns[node.name] == NULL else F.col(node.name)  # which is kept as text
        case tree.Field():
            return _column(node.of, columns).getField(node.name)
        case tree.Item():
            return _item(node, columns)
        case tree.Unary():
            of = _column(node.of, columns)
            return ~of if node.sign == "not" else F.try_subtract(F.lit(0).cast("bigint"), of)
        case tree.Binary():
            return _binary(node, columns)
        case tree.OneOf():
            of = _column(node.of, columns)
            return of.isin(*(_column(each, columns) for each in node.options))
        case tree.IsNull():
            return _column(node.of, columns).isNull()
        case tree.Call():
            return _call(node, columns)


def _literal(node: tree.Literal) -> Column:
    value = F.lit(node.value)
    return value.cast("bigint") if type(node.value) is int else value


def _item(node: tree.Item, columns: Columns) -> Column:
    of, key = _column(node.of, columns), _column(node.key, columns)
    if type_of(node.of, columns).word == "list":
        # An index out of the list is null; one that no list can have must not overflow.
        return F.get(of, F.coalesce(key.try_cast("int"), F.lit(-1)))
    return F.try_element_at(of, key)


def _binary(node: tree.Binary, columns: Columns) -> Column:
    left, right = _column(node.left, columns), _column(node.right, columns)
    match node.sign:
        case "and":
            return left & right
        case "or":
            return left | right
        case "==":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
        case _:
            return _reckoned(node, left, right, type_of(node, columns) == NUMBER)


def _reckoned(node: tree.Binary, left: Column, right: Column, fractional: bool) -> Column:
    reckon = {
        "+": F.try_add,
        "-": F.try_subtract,
        "*": F.try_multiply,
        "/": F.try_divide,
        "%": F.try_mod,
    }[node.sign]
    kind = "double" if fractional else "bigint"
    return reckon(left.cast(kind), right.cast(kind))


def _call(node: tree.Call, columns: Columns) -> Column:
    build = getattr(builders, FUNCTIONS[node.name].build)
    given = [type_of(each, columns) for each in node.arguments]
    arguments = [_column(each, columns) for each in node.arguments]
    built: Column = build(builders.Arguments(arguments, node.arguments, given))
    return built
