"""What an expression is made of; every node knows the character it begins at, from 1."""

from dataclasses import dataclass, field

Plain = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that is written down."""

    value: Plain
    position: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its name."""

    name: str
    position: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Field:
    """`of.name`: a field of a record."""

    of: "Node"
    name: str
    position: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Item:
    """`of[key]`: the value of a map, or the item of a list, from 0."""

    of: "Node"
    key: "Node"
    position: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """`not x` or `-x`."""

    sign: str
    of: "Node"
    position: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """`left sign right`, whose position is that of the sign."""

    sign: str
    left: "Node"
    right: "Node"
    position: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class OneOf:
    """`of in (a, b)`."""

    of: "Node"
    options: "tuple[Node, ...]"
    position: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    """`of is null`."""

    of: "Node"
    position: int = field(default=1, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`name(arguments)`."""

    name: str
    arguments: "tuple[Node, ...]"
    position: int = field(default=1, compare=False)


Node = Literal | Column | Field | Item | Unary | Binary | OneOf | IsNull | Call
