"""Parses the records of a message, in any envelope and syntax."""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from xml.etree.ElementTree import Element, ParseError  # the classes only; defusedxml parses

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting import record_formats as formats
from ams.pipeline.jobs.accounting.envelope import EnvelopeTrust, open_envelope
from ams.pipeline.jobs.fields import coding_of, in_utf8, json_text, json_value, parse_with_mark

STAR: Final = "{http://eu-emi.eu/namespaces/2011/02/storagerecord}"
CAR: Final = "{http://eu-emi.eu/namespaces/2012/11/computerecord}"

_END_OF_RECORD: Final = re.compile(rb"%%[ \t]*$", re.MULTILINE)
_LINE_END: Final = re.compile(rb"\r\n?")
_XML_ENCODING: Final = re.compile(rb"""<\?xml[^>]*\sencoding\s*=\s*["']([A-Za-z0-9._-]+)""")
_HEADER: Final = re.compile(r"\s*([A-Za-z-]+)\s*:\s*[vV]?\s*([0-9.]+)\s*")

RecordItems = tuple[formats.Form, Iterator[tuple[str, object]]]
"""Form of a record, and an iterator over its keys and values, which raises `Broken` if it is not a record."""


class _BrokenText(Broken):
    """A record that holds what is not in the coding of its message."""


def parse(
    data: bytes, _: Mapping[str, str], trust: EnvelopeTrust, *, signed_only: bool = False, now: datetime | None = None
) -> Iterator[formats.Row | Broken]:
    """Read a message; it is set aside once, however many of its records are broken: it may be a megabyte.

    Ends are compared with `now`; None: the time when the message is read.
    """
    text, signer = open_envelope(data, trust)
    if signed_only and not signer:
        raise Broken("not signed")
    broken: list[Broken] = []
    for row in records(text, now or datetime.now(UTC)):
        if isinstance(row, Broken):
            broken.append(row)
        else:
            yield {**row, "signer": signer}
    if broken:
        more = f"; and {len(broken) - 1} more of this message" if len(broken) > 1 else ""
        yield Broken(f"{broken[0]}{more}")


def records(data: bytes, now: datetime) -> Iterator[formats.Row | Broken]:
    """Read all records of a text, yielding `Broken` for each that is not one; raises `Broken` for another text."""
    coding, text = coding_of(data), in_utf8(data, keeps_broken=True).strip()
    if text.startswith(b"<"):
        said = _in_xml(text, had_mark=data.strip() != text)
    else:
        said = _in_json(text) if text.startswith((b"{", b"[")) else _in_text(text)
    for number, (form, pairs) in enumerate(said, 1):
        try:
            yield formats.record(form, pairs, now)
        except _BrokenText:
            yield Broken(f"record {number}: is not {coding}")
        except Broken as error:
            yield Broken(f"record {number}: {error}")
        except RecursionError:
            yield Broken(f"record {number}: its elements are nested too deeply")


def _in_text(data: bytes) -> Iterator[RecordItems]:
    """APEL text: a first line that says what follows, then records of `Key: value` lines, each closed by `%%`.

    The last record may lack its `%%`: some senders put it only between records. Records are parted as bytes, so that
    one that is not UTF-8 does not cost the others of its message.
    """
    first, _, rest = _LINE_END.sub(b"\n", data).partition(b"\n")
    line = first.decode("utf-8", "replace")
    form = formats.IN_TEXT.get(header(line))
    if form is None:
        raise Broken(f"its first line is {line.strip()[:60]!r}, which is no kind of record we know")
    for block in _END_OF_RECORD.split(rest):
        if block and not block.isspace():
            yield form, _lines(block)


def header(line: str) -> str:
    """Return a first line in one spelling, such as `APEL-cloud-message: v0.4`: senders put blanks as they like."""
    match = _HEADER.fullmatch(line)
    return f"{match[1]}: v{match[2]}" if match else ""


def _lines(block: bytes) -> Iterator[tuple[str, str]]:
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        raise _BrokenText from error
    for line in text.split("\n"):
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()
        elif key and not key.isspace():
            raise Broken(f"a line without a colon: {key[:20]!r}")


def _in_json(data: bytes) -> Iterator[RecordItems]:
    document, mark = parse_with_mark(data, json_value)
    form, found = formats.ENERGY, document if isinstance(document, list) else [document]
    if isinstance(document, dict) and "UsageRecords" in document:
        told, found = (str(document.get("Type")), str(document.get("Version"))), document["UsageRecords"]
        if told not in formats.IN_JSON or not isinstance(found, list):
            raise Broken(f"its type and version are '{told[0]:.40} {told[1]:.10}', which is no kind of record we know")
        form = formats.IN_JSON[told]
    elif not found or not all(isinstance(each, dict) and "ExecUnitID" in each for each in found):
        raise Broken("is JSON, but no kind of record we know")
    for each in found:
        yield form, _items(each, mark)
    if form is not formats.ENERGY:
        others = sorted(document.keys() - {"Type", "Version", "UsageRecords"})
        yield from _unknown_key_records(others, form, "UsageRecords")


def _items(found: Any, mark: str) -> Iterator[tuple[str, object]]:
    if not isinstance(found, dict):
        raise Broken("is not an object")
    if mark and mark in json_text(found):
        raise _BrokenText
    yield from found.items()


def _root(data: bytes, *, had_mark: bool) -> tuple[Element, str]:
    """Return the root element, and the mark of what in it is not UTF-8; empty: all of it is.

    What an XML text says of its encoding no longer holds when a byte order mark said another.
    """
    told = _XML_ENCODING.match(data)
    is_utf_8 = had_mark or told is None or told[1].lower() in (b"utf-8", b"utf8", b"us-ascii")

    def parse(text: bytes) -> Element:
        try:
            return fromstring(text.decode() if is_utf_8 else text, forbid_dtd=True)
        except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
            raise Broken("is not XML that is safe to read") from error

    return parse_with_mark(data, parse) if is_utf_8 else (parse(data), "")


def _in_xml(data: bytes, *, had_mark: bool) -> Iterator[RecordItems]:
    root, mark = _root(data, had_mark=had_mark)
    forms = ((STAR, "StorageUsageRecord", formats.STORAGE), (CAR, "UsageRecord", formats.CAR_JOB))
    found = next((each for each in forms if root.tag.removesuffix("s") == f"{each[0]}{each[1]}"), None)
    if found is None:
        raise Broken(f"its root element is {root.tag[:100]!r}, which is no kind of record we know")
    space, name, form = found
    if root.tag == space + name:
        yield form, _record_elements(root, space, mark)
        return
    yield from ((form, _record_elements(each, space, mark)) for each in root.findall(space + name))
    tags = (each.tag.removeprefix(space) for each in root if isinstance(each.tag, str))
    yield from _unknown_key_records((tag for tag in tags if tag != name and not tag.startswith("{")), form, name)


def _unknown_key_records(keys: Iterable[str], form: formats.Form, name: str) -> Iterator[RecordItems]:
    """Yield one record per unknown key beside the records; it will be set aside."""
    yield from ((form, iter([(f"{key[:20]} beside {name}", None)])) for key in keys)


def _record_elements(element: Element, space: str, mark: str) -> Iterator[tuple[str, str]]:
    if mark:
        attributes = (value for each in element.iter() for value in each.attrib.values())
        if any(mark in each for each in (*element.itertext(), *attributes)):
            raise _BrokenText
    yield from _elements(element, space)


def _elements(element: Element, space: str, path: str = "") -> Iterator[tuple[str, str]]:
    """Return texts by `path` or `path[type]` and attributes by `path@name`, without other name spaces."""
    for child in element:
        tag = child.tag.removeprefix(space) if isinstance(child.tag, str) else "{"  # a comment
        if tag.startswith("{"):
            continue
        here = path + tag
        own = {name.removeprefix(space): value.strip() for name, value in child.attrib.items()}
        kind = own.pop(formats.TYPES[here], "all").lower() if here in formats.TYPES else "all"
        for attribute, value in own.items():
            if not attribute.startswith("{"):
                yield f"{here}@{attribute}", value
        if len(child):
            yield from _elements(child, space, f"{here}/")
        elif (text := (child.text or "").strip()) or not child.attrib:
            yield here if kind == "all" else f"{here}[{kind}]", text
