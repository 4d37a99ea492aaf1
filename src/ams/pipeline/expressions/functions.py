"""The functions of expressions: the allow-list.

What a function cannot make of its arguments is null, never an error: a record that is odd must not end a job. Spark is
imported by the builders only, so that definitions are checked without it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ams.pipeline.expressions import types
from ams.pipeline.expressions.types import BOOLEAN, BYTES, DAY, NUMBER, TEXT, TIME, WHOLE, Type


@dataclass(frozen=True, slots=True)
class Wants:
    """What an argument must be."""

    name: str
    """As the reference and errors say it."""
    accepts: Callable[[Type], bool]
    literal: bool = False
    """Whether it must be written down, so that it is the same for all records."""


Result = Type | Callable[[Sequence[Type]], Type | None]
"""The type of what comes out; worked out of the arguments', None when these do not go together."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function: what it takes, what it makes of it, and how."""

    summary: str
    takes: tuple[Wants, ...]
    result: Result
    build: str
    """The name of its builder in `ams.pipeline.expressions.builders`."""
    more: bool = False
    """Whether the last argument may be repeated."""

    def takes_count(self, count: int) -> bool:
        """Whether it can be called with so many arguments."""
        return count >= len(self.takes) if self.more else count == len(self.takes)

    def wanted(self, place: int) -> Wants:
        """Return what the argument at `place`, from 0, must be."""
        return self.takes[min(place, len(self.takes) - 1)]


def _fits(*wanted: Type) -> Callable[[Type], bool]:
    return lambda given: any(types.fits(given, each) for each in wanted)


def _is_a(*words: str) -> Callable[[Type], bool]:
    return lambda given: given.word in (*words, "null")


_TEXT = Wants("text", _fits(TEXT))
_WRITTEN_TEXT = Wants("text that is written down", _fits(TEXT), literal=True)
_WRITTEN_WHOLE = Wants("a whole number that is written down", _fits(WHOLE), literal=True)
_WHOLE = Wants("a whole number", _fits(WHOLE))
_NUMBER = Wants("a number", types.is_number)
_BOOLEAN = Wants("true or false", _fits(BOOLEAN))
_TIME = Wants("a time", _fits(TIME))
_DATED = Wants("a time or a day", _fits(TIME, DAY))
_MEASURED = Wants("text or bytes", _fits(TEXT, BYTES))
_COUNTED = Wants("a list or a map", _is_a("list", "map"))
_SEARCHED = Wants("text or a list", _is_a("text", "list"))
_MAP = Wants("a map", _is_a("map"))
_SIMPLE = Wants("text, a number, a boolean, a time, a day or bytes", _fits(TEXT, NUMBER, BOOLEAN, TIME, DAY, BYTES))
_NUMERIC = Wants("text, a number or a boolean", _fits(TEXT, NUMBER, BOOLEAN))
_MADE = Wants("a list, a map or a record", _is_a("list", "map", "record"))
_TIMELY = Wants("text, or a whole number of seconds since 1970", _fits(TEXT, WHOLE, TIME, DAY))
_DAILY = Wants("text, a time or a day", _fits(TEXT, TIME, DAY))
_ORDERED = Wants("text, a number, a boolean, a time or a day", types.is_ordered)
_ANY = Wants("anything", lambda _: True)


def _common(given: Sequence[Type]) -> Type | None:
    return types.common(list(given))


def _of_the_branches(given: Sequence[Type]) -> Type | None:
    return types.common(list(given[1:]))


def _same_number(given: Sequence[Type]) -> Type:
    return NUMBER if NUMBER in given else WHOLE


def _contains(given: Sequence[Type]) -> Type | None:
    item = given[0].item if given[0].item else TEXT
    return BOOLEAN if types.fits(given[1], item) else None


FUNCTIONS: dict[str, Function] = {
    # text
    "lower": Function("in small letters", (_TEXT,), TEXT, "lower"),
    "upper": Function("in capital letters", (_TEXT,), TEXT, "upper"),
    "trim": Function("without blanks at both ends", (_TEXT,), TEXT, "trim"),
    "length": Function("how many characters, or bytes", (_MEASURED,), WHOLE, "length"),
    "concat": Function("texts joined; null if one of them is", (_TEXT,), TEXT, "concat", more=True),
    "substring": Function("from a place, counted from 1, so many characters", (_TEXT, _WHOLE, _WHOLE), TEXT, "slice_"),
    "replace": Function("each occurrence of the second text by the third", (_TEXT, _TEXT, _TEXT), TEXT, "replace"),
    "starts_with": Function("whether text begins with another", (_TEXT, _TEXT), BOOLEAN, "starts_with"),
    "ends_with": Function("whether text ends with another", (_TEXT, _TEXT), BOOLEAN, "ends_with"),
    "split": Function("parts between separators", (_TEXT, _WRITTEN_TEXT), types.list_of(TEXT), "split"),
    "sha256": Function("hash of text or bytes, in hex", (_MEASURED,), TEXT, "sha256"),
    # numbers
    "abs": Function("without its sign", (_NUMBER,), _same_number, "absolute"),
    "round": Function("to so many decimals, half up", (_NUMBER, _WRITTEN_WHOLE), NUMBER, "rounded"),
    "floor": Function("the whole number below", (_NUMBER,), WHOLE, "floor"),
    "ceil": Function("the whole number above", (_NUMBER,), WHOLE, "ceil"),
    "least": Function("the smallest, nulls left out", (_ORDERED, _ORDERED), _common, "least", more=True),
    "greatest": Function("the largest, nulls left out", (_ORDERED, _ORDERED), _common, "greatest", more=True),
    # choices
    "if": Function("the second if the first is true, else the third", (_BOOLEAN, _ANY, _ANY), _of_the_branches, "if_"),
    "coalesce": Function("the first that is not null", (_ANY,), _common, "coalesce", more=True),
    # types
    "text": Function("as text; of bytes, null if they are not UTF-8", (_SIMPLE,), TEXT, "text"),
    "whole": Function("as a whole number", (_NUMERIC,), WHOLE, "whole"),
    "number": Function("as a number", (_NUMERIC,), NUMBER, "number"),
    "json": Function("as JSON", (_MADE,), TEXT, "json"),
    # times, all in UTC
    "time": Function("as a time", (_TIMELY,), TIME, "time"),
    "day": Function("as a day", (_DAILY,), DAY, "day"),
    "month": Function("such as 2024-03", (_DATED,), TEXT, "month"),
    "year": Function("such as 2024", (_DATED,), WHOLE, "year"),
    "hour": Function("the time cut to the hour", (_TIME,), TIME, "hour"),
    "minute": Function("the time cut to the minute", (_TIME,), TIME, "minute"),
    "seconds": Function("seconds since 1970", (_TIME,), WHOLE, "seconds"),
    # lists and maps
    "size": Function("how many items", (_COUNTED,), WHOLE, "size"),
    "contains": Function("whether text has a part, or a list an item", (_SEARCHED, _ANY), _contains, "contains"),
    "has": Function("whether a map has a key", (_MAP, _TEXT), BOOLEAN, "has"),
}
