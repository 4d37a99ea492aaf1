"""From the data of a message to the records in it, whatever envelope and syntax they come in."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from xml.etree.ElementTree import Element, ParseError  # the classes only; defusedxml parses

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.accounting.envelope import Trust, opened
from ams.pipeline.jobs.accounting.forms import Form, Row, record
from ams.pipeline.jobs.accounting.kinds import CAR_JOB, ENERGY, IN_JSON, IN_TEXT, STORAGE, TYPES
from ams.pipeline.jobs.fields import json_value

STAR: Final = "{http://eu-emi.eu/namespaces/2011/02/storagerecord}"
CAR: Final = "{http://eu-emi.eu/namespaces/2012/11/computerecord}"

_END_OF_RECORD: Final = re.compile(r"^%%[ \t]*$", re.MULTILINE)

Said = tuple[Form, Iterator[tuple[str, object]]]
"""The form of a record, and its keys and values; going through them raises `Broken` for what is no record at all."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads messages; what cannot be read is `Broken`, raised for a message and yielded for records of one.

    A message is set aside once, however many of its records are broken: it is kept whole, and may be a megabyte.
    """

    trust: Trust = Trust()
    signed_only: bool = False
    """Whether what came without a signature is refused."""
    now: datetime | None = None
    """The time that ends are compared with; None: when the message is read."""

    def __call__(self, data: bytes, _attributes: Mapping[str, str]) -> Iterator[Row | Broken]:
        """Read the data of one message."""
        text, signer = opened(data, self.trust)
        if self.signed_only and not signer:
            raise Broken("not signed")
        broken: list[Broken] = []
        for row in records(text, self.now or datetime.now(UTC)):
            if isinstance(row, Broken):
                broken.append(row)
            else:
                yield {**row, "signer": signer}
        if broken:
            more = f"; and {len(broken) - 1} more of this message" if len(broken) > 1 else ""
            yield Broken(f"{broken[0]}{more}")


def records(data: bytes, now: datetime) -> Iterator[Row | Broken]:
    """Read all records of a text, yielding `Broken` for each that is not one; raises `Broken` for another text."""
    for number, (form, pairs) in enumerate(_said(data.strip()), 1):
        try:
            yield record(form, pairs, now)
        except Broken as error:
            yield Broken(f"record {number}: {error}")
        except RecursionError:
            yield Broken(f"record {number}: its elements are nested too deeply")


def _said(data: bytes) -> Iterator[Said]:
    if data.startswith(b"<"):
        return _in_xml(data)
    if data.startswith((b"{", b"[")):
        return _in_json(data)
    return _in_text(data)


def _in_text(data: bytes) -> Iterator[Said]:
    """APEL text: a first line that says what follows, then records of `Key: value` lines, each closed by a line `%%`.

    The last record may lack its `%%`: some senders put it only between records.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Broken("is not UTF-8") from error
    first, _, rest = text.replace("\r\n", "\n").partition("\n")
    form = IN_TEXT.get(first.strip())
    if form is None:
        raise Broken(f"its first line is {first.strip()[:60]!r}, which is no kind of record we know")
    for block in _END_OF_RECORD.split(rest):
        if block and not block.isspace():
            yield form, _lines(block)


def _lines(block: str) -> Iterator[tuple[str, str]]:
    for line in block.split("\n"):
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()
        elif key and not key.isspace():
            raise Broken(f"a line without a colon: {key[:20]!r}")


def _in_json(data: bytes) -> Iterator[Said]:
    """JSON: an object with the type, the version and the list of records, or energy records alone."""
    document = json_value(data)
    form, found = ENERGY, document if isinstance(document, list) else [document]
    if isinstance(document, dict) and "UsageRecords" in document:
        told, found = (str(document.get("Type")), str(document.get("Version"))), document["UsageRecords"]
        if told not in IN_JSON or not isinstance(found, list):
            raise Broken(f"its type and version are '{told[0]:.40} {told[1]:.10}', which is no kind of record we know")
        form = IN_JSON[told]
    elif not found or not all(isinstance(each, dict) and "ExecUnitID" in each for each in found):
        raise Broken("is JSON, but no kind of record we know")
    for each in found:
        yield form, _items(each)


def _items(found: Any) -> Iterator[tuple[str, object]]:
    if not isinstance(found, dict):
        raise Broken("is not an object")
    yield from found.items()


def _in_xml(data: bytes) -> Iterator[Said]:
    """XML: storage (StAR) and jobs (CAR); what is not known is passed over, as the schemas let anyone add some."""
    try:
        root = fromstring(data, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise Broken("is not XML that is safe to read") from error
    if root.tag == f"{STAR}StorageUsageRecords":
        form, space, found = STORAGE, STAR, root.findall(f"{STAR}StorageUsageRecord")
    elif root.tag in (f"{CAR}UsageRecords", f"{CAR}UsageRecord"):
        one = root.tag == f"{CAR}UsageRecord"
        form, space, found = CAR_JOB, CAR, [root] if one else root.findall(f"{CAR}UsageRecord")
    else:
        raise Broken(f"its root element is {root.tag[:100]!r}, which is no kind of record we know")
    for each in found:
        yield form, _elements(each, space)


def _elements(element: Element, space: str, path: str = "") -> Iterator[tuple[str, str]]:
    """Return texts of elements by `path` or `path[type]`, and attributes by `path@name`."""
    for child in element:
        here = path + (child.tag.removeprefix(space) if isinstance(child.tag, str) else "")
        for attribute, value in child.attrib.items():
            yield f"{here}@{attribute.removeprefix(space)}", value.strip()
        if len(child):
            yield from _elements(child, space, f"{here}/")
            continue
        kind = child.get(f"{space}{TYPES[here]}", "all") if here in TYPES else "all"
        yield here if kind == "all" else f"{here}[{kind}]", (child.text or "").strip()
