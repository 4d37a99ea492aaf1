"""What an expression is of, found before Spark starts: names, numbers of arguments, types."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from ams.pipeline.expressions import types
from ams.pipeline.expressions.functions import FUNCTIONS, Function
from ams.pipeline.expressions.tokens import WrongExpression
from ams.pipeline.expressions.tree import Binary, Call, Column, Field, IsNull, Item, Literal, Node, OneOf, Unary
from ams.pipeline.expressions.types import BOOLEAN, NULL, NUMBER, TEXT, WHOLE, Type

Columns = Mapping[str, Type]

_SHOWN = 12
"""Names an error lists at most."""


def type_of(node: Node, columns: Columns) -> Type:
    """Return the type of an expression over `columns`; raise `WrongExpression` for what cannot be."""
    match node:
        case Literal():
            return _of_literal(node)
        case Column():
            return _of_column(node, columns)
        case Field():
            return _of_field(node, columns)
        case Item():
            return _of_item(node, columns)
        case Unary():
            return _of_unary(node, columns)
        case Binary():
            return _of_binary(node, columns)
        case OneOf():
            return _of_choice(node, columns)
        case IsNull():
            type_of(node.of, columns)
            return BOOLEAN
        case Call():
            return _of_call(node, columns)


def _of_literal(node: Literal) -> Type:
    if node.value is None:
        return NULL
    return {str: TEXT, bool: BOOLEAN, int: WHOLE, float: NUMBER}[type(node.value)]


def _of_column(node: Column, columns: Columns) -> Type:
    if node.name not in columns:
        raise WrongExpression(node.position, f"no column {node.name!r}; {hint(node.name, columns)}")
    return columns[node.name]


def _of_field(node: Field, columns: Columns) -> Type:
    of = type_of(node.of, columns)
    if of.word != "record":
        advice = f"; write ['{node.name}']" if of.word == "map" else ""
        raise WrongExpression(node.position, f"{of} has no fields{advice}")
    found = of.field(node.name)
    if found is None:
        names = [name for name, _ in of.fields]
        raise WrongExpression(node.position, f"no field {node.name!r}; {hint(node.name, names)}")
    return found


def _of_item(node: Item, columns: Columns) -> Type:
    of, key = type_of(node.of, columns), type_of(node.key, columns)
    if of.word not in ("list", "map") or of.item is None:
        raise WrongExpression(node.position, f"only a list or a map has items, not {of}")
    wanted = WHOLE if of.word == "list" else TEXT
    if not types.fits(key, wanted):
        raise WrongExpression(node.key.position, f"the items of a {of.word} are asked for by {wanted}, not {key}")
    return of.item


def _of_unary(node: Unary, columns: Columns) -> Type:
    of = type_of(node.of, columns)
    if node.sign == "not":
        _expect(node.of, of, types.fits(of, BOOLEAN), "not needs true or false")
        return BOOLEAN
    _expect(node.of, of, types.is_number(of), "- needs a number")
    return WHOLE if of == NULL else of


def _of_binary(node: Binary, columns: Columns) -> Type:
    left, right = type_of(node.left, columns), type_of(node.right, columns)
    if node.sign in ("and", "or"):
        for side, given in ((node.left, left), (node.right, right)):
            _expect(side, given, types.fits(given, BOOLEAN), f"{node.sign} needs true or false on both sides")
        return BOOLEAN
    if node.sign in "+-*/%":
        return _of_reckoning(node, left, right)
    both = types.common([left, right])
    if both is None:
        raise WrongExpression(node.position, f"{left} is not compared with {right}{_conversion(left, right)}")
    ordered = types.is_ordered(both) or (node.sign in ("==", "!=") and both == types.BYTES)
    if not ordered:
        raise WrongExpression(node.position, f"{both} cannot be compared")
    return BOOLEAN


def _of_reckoning(node: Binary, left: Type, right: Type) -> Type:
    for side, given in ((node.left, left), (node.right, right)):
        advice = "; texts are joined by concat(...)" if node.sign == "+" and given == TEXT else ""
        _expect(side, given, types.is_number(given), f"{node.sign} needs numbers on both sides", advice)
    return NUMBER if NUMBER in (left, right) or node.sign == "/" else WHOLE


def _of_choice(node: OneOf, columns: Columns) -> Type:
    of = type_of(node.of, columns)
    for option in node.options:
        both = types.common([of, type_of(option, columns)])
        if both is None or not types.is_ordered(both):
            given = type_of(option, columns)
            raise WrongExpression(option.position, f"{of} is not compared with {given}{_conversion(of, given)}")
    return BOOLEAN


def _of_call(node: Call, columns: Columns) -> Type:
    function = FUNCTIONS.get(node.name)
    if function is None:
        raise WrongExpression(node.position, f"no function {node.name!r}; {hint(node.name, FUNCTIONS)}")
    if not function.takes_count(len(node.arguments)):
        raise WrongExpression(node.position, f"{node.name} takes {_arity(function)}, not {len(node.arguments)}")
    given = [type_of(argument, columns) for argument in node.arguments]
    for place, argument in enumerate(node.arguments):
        wanted = function.wanted(place)
        right = wanted.accepts(given[place]) and not (wanted.literal and not is_literal(argument))
        _expect(argument, given[place], right, f"{node.name} needs {wanted.name} here")
    result = function.result if isinstance(function.result, Type) else function.result(given)
    if result is None:
        kinds = ", ".join(map(str, given))
        raise WrongExpression(node.position, f"the arguments of {node.name} do not go together: {kinds}")
    return result


def is_literal(node: Node) -> bool:
    """Whether it is a value that is written down."""
    return isinstance(node, Literal) and node.value is not None


def hint(name: str, known: Iterable[str]) -> str:
    """Return what may have been meant by `name`, or what there is."""
    names = sorted(known)
    if near := get_close_matches(name, names, n=1):
        return f"did you mean {near[0]}?"
    more = ", ..." if len(names) > _SHOWN else ""
    return f"there are {', '.join(names[:_SHOWN])}{more}" if names else "there are none"


def _expect(node: Node, given: Type, right: bool, reason: str, advice: str = "") -> None:
    if not right:
        raise WrongExpression(node.position, f"{reason}, not {given}{advice}")


def _arity(function: Function) -> str:
    count = len(function.takes)
    least = "at least " if function.more else ""
    return f"{least}{count} argument{'' if count == 1 else 's'}"


def _conversion(left: Type, right: Type) -> str:
    """Return how the two could be compared, where there is a function for it."""
    if TEXT not in (left, right):
        return ""
    other = right if left == TEXT else left
    return f"; {other.word}(...) makes one of text" if other.word in FUNCTIONS else ""
