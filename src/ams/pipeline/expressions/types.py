"""Types of columns as definitions name them, without Spark."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Type:
    """A type: a word, or one made of others."""

    word: str
    """`text`, `whole`, `number`, `boolean`, `time`, `day`, `bytes`, `null`, `list`, `map` or `record`."""
    item: "Type | None" = None
    """Of the items of a list, or of the values of a map, whose keys are text."""
    fields: "tuple[tuple[str, Type], ...]" = ()
    """Of a record, in their order."""

    def __str__(self) -> str:
        if self.item:
            return f"{self.word} of {self.item}"
        if self.fields:
            return f"record of {', '.join(name for name, _ in self.fields)}"
        return self.word

    def field(self, name: str) -> "Type | None":
        """Return the type of a field of a record, None when there is none."""
        return dict(self.fields).get(name)


TEXT = Type("text")
WHOLE = Type("whole")
"""A whole number of 64 bits."""
NUMBER = Type("number")
"""A floating-point number of 64 bits."""
BOOLEAN = Type("boolean")
TIME = Type("time")
"""A moment, in microseconds; written and read as UTC."""
DAY = Type("day")
BYTES = Type("bytes")
NULL = Type("null")
"""Of the word null: fits everywhere."""

WORDS = {each.word: each for each in (TEXT, WHOLE, NUMBER, BOOLEAN, TIME, DAY, BYTES)}
"""The types that are one word in a definition."""

_ORDERED = (TEXT, WHOLE, NUMBER, BOOLEAN, TIME, DAY)


def list_of(item: Type) -> Type:
    """Return the type of lists of `item`."""
    return Type("list", item)


def map_of(item: Type) -> Type:
    """Return the type of maps from text to `item`."""
    return Type("map", item)


def record(fields: dict[str, Type]) -> Type:
    """Return the type of records with these fields."""
    return Type("record", fields=tuple(fields.items()))


def fits(given: Type, wanted: Type) -> bool:
    """Whether a value of type `given` can stand where `wanted` is asked for."""
    return given in (wanted, NULL) or (given == WHOLE and wanted == NUMBER)


def common(types: "list[Type]") -> Type | None:
    """Return the type all of `types` fit, None when there is none."""
    candidates = [each for each in dict.fromkeys(types) if all(fits(other, each) for other in types)]
    return candidates[0] if candidates else None


def is_number(given: Type) -> bool:
    """Whether one can reckon with it."""
    return given in (WHOLE, NUMBER, NULL)


def is_ordered(given: Type) -> bool:
    """Whether values of it come before and after one another."""
    return given in (*_ORDERED, NULL)
