"""Reads JSON payloads field by field; errors (`Broken`) name the field.

Pure Python, for the parsers of several jobs. Reasons hold field names and at most the beginning of a short value.
"""

import codecs
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from ams.pipeline.errors import Broken

T = TypeVar("T")
K = TypeVar("K")
Record = dict[str, Any]
Names = Mapping[str, tuple[Sequence[str], Callable[[Record, str], Any]]]

_QUOTED_CHARACTERS = 40  # of a wrong value in an error
_WHOLE = re.compile(r"\s*-?[0-9]{1,18}\s*")
_MIDNIGHT = re.compile(r"([T ])24:00(?=(?::00(?:\.0+)?)?(?:$|[Z+-]))")
_LEAP_SECOND = re.compile(r"([T ][0-9]{2}:[0-9]{2}):60")
_MAX_LONG = 2**63 - 1


def names(**pairs: str) -> Names:
    """Return a table of names, such as `needed="id=ID", text="url=URL|Link"`: columns and fields by the readers below.

    Of several fields the first with a value counts.
    """
    told = ((reader, *pair.split("=")) for reader, words in pairs.items() for pair in words.split())
    return {column: (name.split("|"), globals()[reader]) for reader, column, name in told}


def read(record: Record, names: Names) -> Record:
    """Return the columns of a table of names; raises `Broken`, naming the field."""
    return {column: first(reader(record, each) for each in fields) for column, (fields, reader) in names.items()}


def first(values: Iterable[T | None]) -> T | None:
    """Return the first value that is there."""
    return next((each for each in values if each is not None), None)


def group(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Return the values of pairs by their keys, in order."""
    found: dict[K, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def names_in(*tables: Names) -> Iterator[str]:
    """Yield the names of fields that tables of names read."""
    return (name for table in tables for fields, _ in table.values() for name in fields)


_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_BROKEN_UNIT = "ams.pipeline.broken-unit"
codecs.register_error(_BROKEN_UNIT, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]  # of a decoder
_NOT_UTF_8 = re.compile("[\udc80-\udcff]+")
_PRIVATE_USE = range(0xE000, 0xF900)  # characters that mean nothing, to stand for what is not UTF-8


def coding_of(data: bytes) -> str:
    """Return a text's encoding by its byte order mark: UTF-16 or UTF-32, else UTF-8."""
    mark = next(filter(data.startswith, _MARKS), codecs.BOM_UTF8)
    return _MARKS[mark].upper()


def in_utf8(data: bytes, *, keeps_broken: bool = False) -> bytes:
    """Return a text in UTF-8 without its byte order mark; raises `Broken` for one that is not in what its mark says.

    With `keeps_broken`, what is broken becomes bytes that are not UTF-8, so that it may cost one record of several.
    """
    if data.startswith(codecs.BOM_UTF8):
        return data[len(codecs.BOM_UTF8) :]
    coding = coding_of(data)
    if coding == "UTF-8":
        return data
    try:
        return data.decode(coding, _BROKEN_UNIT if keeps_broken else "strict").encode("utf-8", "surrogateescape")
    except UnicodeError as error:
        raise Broken(f"is not {coding}, as its byte order mark says") from error


def is_broken(text: str) -> bool:
    """Return whether a text, decoded with `surrogateescape`, holds what was not UTF-8."""
    return _NOT_UTF_8.search(text) is not None


def json_text(value: Any) -> str:
    """Write a value as JSON."""
    return msgspec.json.encode(value).decode()


def parse_with_mark(data: bytes, parse: Callable[[bytes], T]) -> tuple[T, str]:
    """Parse a text in UTF-8, also if parts of it are not: return the mark that stands for each of these, else "".

    The mark is nowhere else in the text. Without it one byte would cost all records of a message. Raises as `parse`.
    """
    try:
        return parse(data), ""
    except Broken:
        text = data.decode("utf-8", "surrogateescape")
        mark = next((chr(each) for each in _PRIVATE_USE if chr(each) not in text), chr(_PRIVATE_USE[0]))
        marked = _NOT_UTF_8.sub(mark, text)
        if mark not in marked:
            raise
        return parse(marked.encode()), mark


def json_value(data: bytes) -> Any:
    """Decode a payload; raises `Broken` for what is not JSON in UTF-8, or in UTF-16 with a mark."""
    if not data:
        raise Broken("the message is empty")
    try:
        return msgspec.json.decode(in_utf8(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Broken("not JSON") from error


def json_object(data: bytes) -> Record:
    """Decode a payload that has to be a JSON object."""
    return an_object(json_value(data), "the message")


def field_names(own: str, *tables: Names) -> frozenset[str]:
    """Return the names of fields, written with blanks between, and those that tables of names read."""
    return frozenset((*own.split(), *names_in(*tables)))


MAX_NAMES = 200  # ignored field names per message
MAX_NAME = 120  # characters of an ignored name


def unknown_fields(record: Record, known: Collection[str], path: str = "") -> list[str]:
    """Return the names of fields that no row of `docs/reference/job-inputs.md` has, behind a path, in their order."""
    unknown = sorted(name for name in record if name not in known)
    return [f"{path}{name}"[:MAX_NAME] for name in unknown[:MAX_NAMES]]


def an_object(value: object, name: str) -> Record:
    """Return a value that has to be an object."""
    if not isinstance(value, dict):
        raise Broken(f"{name} is not an object")
    return value


def a_list(record: Record, name: str) -> list[Any]:
    """Return a field that has to be a list; missing or null is an empty one. Raises `Broken`."""
    value = record.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Broken(f"{name} is not a list")
    return value


def objects(record: Record, name: str) -> list[Record]:
    """Return a field that has to be a list of objects."""
    return [an_object(value, f"{name}[{place}]") for place, value in enumerate(a_list(record, name))]


def text(record: Record, name: str) -> str | None:
    """Return a text field; missing, null and empty are `None`."""
    value = _text(record, name)
    if value and "\0" in value:
        raise Broken(f"{name} holds a NUL character")
    return value


def _text(record: Record, name: str) -> str | None:
    value = record.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise Broken(f"{name} is not text")
    return value


def needed(record: Record, name: str) -> str:
    """Return a required text."""
    value = text(record, name)
    if value is None:
        raise Broken(f"{name} is missing")
    return value


def one_of(word: str, name: str, words: Collection[str]) -> str:
    """Return a text that has to be one of some words."""
    if word not in words:
        raise Broken(f"{name} is none of {', '.join(words)}: {abbreviate(word)}")
    return word


def free_text(record: Record, name: str) -> str | None:
    """Return a text for people, which may hold anything: what databases cannot keep is replaced, not refused."""
    value = _text(record, name)
    return value and value.replace("\0", "\ufffd")


def whole(record: Record, name: str) -> int | None:
    """Return a field that has to be a whole number, in digits or as text of digits; missing and null are `None`."""
    value = record.get(name)
    if value is None or (isinstance(value, str) and value.strip().upper() in ("", "NONE", "NULL")):
        return None
    is_whole = _WHOLE.fullmatch(value) if isinstance(value, str) else isinstance(value, float) and value.is_integer()
    number = int(value) if is_whole else value
    if not isinstance(number, int) or isinstance(number, bool) or abs(number) > _MAX_LONG:
        raise Broken(f"{name} is not a whole number: {abbreviate(value)}")
    return number


def moment(record: Record, name: str) -> datetime:
    """Return a time that has to be there: ISO 8601 to the second or finer; without a zone it is UTC."""
    value = needed(record, name)
    try:
        found = utc(value)
    except ValueError as error:
        raise Broken(f"{name} is not a time: {abbreviate(value)}") from error
    if "T" not in value and " " not in value:
        raise Broken(f"{name} is a day and not a time: {abbreviate(value)}")
    return found


def utc(text: str) -> datetime:
    """Read ISO 8601, UTC without a zone; 24:00:00 and a leap second are the second after. Raises `ValueError`."""
    midnight, leap = _MIDNIGHT.search(text), _LEAP_SECOND.search(text)
    later = timedelta(days=1 if midnight else 0, seconds=1 if leap else 0)
    if midnight or leap:
        text = _LEAP_SECOND.sub(r"\1:59", _MIDNIGHT.sub(r"\g<1>00:00", text))
    try:
        found = datetime.fromisoformat(text) + later
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("beyond the calendar") from error


def join(separator: str, *texts: str | None) -> str | None:
    """Join the texts that are present; None without any."""
    return separator.join(filter(None, texts)) or None


def total(numbers: Iterable[int | None], name: str) -> int | None:
    """Sum an integer field over objects; None if all lack it."""
    known = [number for number in numbers if number is not None]
    found = sum(known)
    if abs(found) > _MAX_LONG:
        raise Broken(f"{name} adds up to more than can be")
    return found if known else None


def abbreviate(value: object) -> str:
    """Return the beginning of a value for an error; lists and objects only by kind: they may hold anything."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    words = repr(value)
    return words if len(words) <= _QUOTED_CHARACTERS else f"{words[:_QUOTED_CHARACTERS]}..."
