"""How each function of `ams.pipeline.expressions.functions` is made of Spark's.

Spark fails a whole job where a cast or a sum cannot be done; what is used here gives null instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from ams.pipeline.expressions.tree import Literal, Node, Plain
from ams.pipeline.expressions.types import BYTES, DAY, NUMBER, TEXT, TIME, WHOLE, Type

_FIRST_SECOND, _LAST_SECOND = -62135596800, 253402300799
"""From year 1 to year 9999: what Spark's times can be, in seconds since 1970."""
_YEAR = r"^\s*(?!0000)[0-9]{4}(-|\s*$)"
"""How a text begins that says a day of the years 1 to 9999."""
_MOST_DECIMALS = 15


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call, as columns, as they were written, and their types."""

    columns: Sequence[Column]
    nodes: Sequence[Node]
    types: Sequence[Type]

    @property
    def first(self) -> Column:
        """The first, which most functions work on."""
        return self.columns[0]

    def written(self, place: int) -> Plain:
        """Return the value of an argument that is written down."""
        node = self.nodes[place]
        return node.value if isinstance(node, Literal) else None


def lower(given: Arguments) -> Column:
    """In small letters."""
    return F.lower(given.first)


def upper(given: Arguments) -> Column:
    """In capital letters."""
    return F.upper(given.first)


def trim(given: Arguments) -> Column:
    """Without blanks at both ends."""
    return F.trim(given.first)


def length(given: Arguments) -> Column:
    """Count characters of text, bytes of bytes."""
    return F.length(given.first).cast("bigint")


def concat(given: Arguments) -> Column:
    """Join texts."""
    return F.concat(*given.columns)


def slice_(given: Arguments) -> Column:
    """Cut text; a place or a length that no text can have makes null."""
    text, place, count = given.columns
    return F.substring(text, place.try_cast("int"), count.try_cast("int"))


def replace(given: Arguments) -> Column:
    """Put one text for another."""
    return F.replace(*given.columns)


def starts_with(given: Arguments) -> Column:
    """Compare the beginning."""
    return F.startswith(*given.columns)


def ends_with(given: Arguments) -> Column:
    """Compare the end."""
    return F.endswith(*given.columns)


def split(given: Arguments) -> Column:
    """Split at a separator as it is: Spark takes a pattern, so it is quoted."""
    separator = str(given.written(1)).replace("\\E", "\\E\\\\E\\Q")
    return F.split(given.first, f"\\Q{separator}\\E")


def sha256(given: Arguments) -> Column:
    """Hash text as UTF-8, or bytes."""
    return F.sha2(given.first.cast("binary"), 256)


def absolute(given: Arguments) -> Column:
    """Take the sign away; the lowest whole number has no counterpart and becomes null."""
    zero = F.lit(0).cast("double" if given.types[0] == NUMBER else "bigint")
    return F.when(given.first < 0, F.try_subtract(zero, given.first)).otherwise(given.first)


def rounded(given: Arguments) -> Column:
    """Round half up."""
    decimals = int(given.written(1) or 0)
    return F.round(given.first.cast("double"), min(decimals, _MOST_DECIMALS))


def floor(given: Arguments) -> Column:
    """Round down."""
    return given.first if given.types[0] == WHOLE else F.floor(given.first.cast("double"))


def ceil(given: Arguments) -> Column:
    """Round up."""
    return given.first if given.types[0] == WHOLE else F.ceil(given.first.cast("double"))


def least(given: Arguments) -> Column:
    """Take the smallest."""
    return F.least(*given.columns)


def greatest(given: Arguments) -> Column:
    """Take the largest."""
    return F.greatest(*given.columns)


def if_(given: Arguments) -> Column:
    """Choose; what is neither true nor false counts as false."""
    condition, then, otherwise = given.columns
    return F.when(condition.cast("boolean"), then).otherwise(otherwise)  # which a bare null is not


def coalesce(given: Arguments) -> Column:
    """Take the first that is there."""
    return F.coalesce(*given.columns)


def text(given: Arguments) -> Column:
    """Write as text."""
    written = given.first.cast("string")
    return F.try_validate_utf8(written) if given.types[0] == BYTES else written


def whole(given: Arguments) -> Column:
    """Read a whole number; fractions are cut off."""
    return given.first.try_cast("bigint")


def number(given: Arguments) -> Column:
    """Read a number."""
    return given.first.try_cast("double")


def json(given: Arguments) -> Column:
    """Write as JSON."""
    return F.to_json(given.first)


def time(given: Arguments) -> Column:
    """Read a time from text, a day or seconds."""
    if given.types[0] == WHOLE:
        possible = given.first.between(_FIRST_SECOND, _LAST_SECOND)
        return F.when(possible, F.timestamp_seconds(given.first))
    if given.types[0] == TIME:
        return given.first
    found = _dated(given, "timestamp")  # whose zone may bring it beyond the first or the last year
    return F.when(found.between(*(F.timestamp_seconds(F.lit(each)) for each in (_FIRST_SECOND, _LAST_SECOND))), found)


def day(given: Arguments) -> Column:
    """Read a day from text, or cut a time to it."""
    return given.first if given.types[0] == DAY else _dated(given, "date")


def _dated(given: Arguments, kind: str) -> Column:
    """Cast; of text only what begins with a year.

    Spark would take more: words such as `today`, and times without a day, which to it are of today.
    """
    found = given.first.try_cast(kind)
    return F.when(given.first.rlike(_YEAR), found) if given.types[0] == TEXT else found


def month(given: Arguments) -> Column:
    """Write the month of a time or day."""
    return F.date_format(given.first, "yyyy-MM")


def year(given: Arguments) -> Column:
    """Take the year."""
    return F.year(given.first).cast("bigint")


def hour(given: Arguments) -> Column:
    """Cut to the hour."""
    return F.date_trunc("hour", given.first)


def minute(given: Arguments) -> Column:
    """Cut to the minute."""
    return F.date_trunc("minute", given.first)


def seconds(given: Arguments) -> Column:
    """Count seconds since 1970."""
    return F.unix_seconds(given.first)


def size(given: Arguments) -> Column:
    """Count items; of null it is null."""
    return F.when(given.first.isNotNull(), F.size(given.first)).cast("bigint")


def contains(given: Arguments) -> Column:
    """Look for a part of text, or an item of a list."""
    of, sought = given.columns
    return F.array_contains(of, sought) if given.types[0].word == "list" else F.contains(of, sought)


def has(given: Arguments) -> Column:
    """Look for a key."""
    return F.map_contains_key(*given.columns)
