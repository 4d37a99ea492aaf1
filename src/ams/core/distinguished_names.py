"""Distinguished names of certificates, and the normal form they are compared in (authn contract 10).

One name has several notations: OpenSSL's old `/C=GR/O=Acme/CN=Jane`, the comma form of RFC 4514 (leaf first), and the
comma form that OpenSSL prints today (leaf last). Names are compared in their normal form.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

_OIDS = {
    "1.2.840.113549.1.9.1": "E",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.3": "CN",
    "2.5.4.11": "OU",
    "2.5.4.10": "O",
    "2.5.4.17": "POSTALCODE",
    "2.5.4.9": "STREET",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.6": "C",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Labels of the attributes in the normal form, by OID and label."""
_ESCAPED_LABELS = ("SERIALNUMBER", "CN", "OU", "O", "POSTALCODE", "STREET", "L", "ST", "C")
"""Attributes between `E` and `DC`, in this order; only these are escaped."""
_SPELLINGS = {label.lower(): label for label in _OIDS.values()} | {
    "emailaddress": "E", "email": "E",
    "commonname": "CN",
    "organizationalunitname": "OU", "organizationalunit": "OU",
    "organizationname": "O", "organization": "O",
    "streetaddress": "STREET",
    "localityname": "L", "locality": "L",
    "stateorprovincename": "ST", "s": "ST",
    "countryname": "C", "country": "C",
    "domaincomponent": "DC",
}  # fmt: skip
_IGNORED_LABELS = (
    "uid", "userid", "gn", "givenname", "sn", "surname", "title", "initials", "name", "pseudonym", "description",
    "dnqualifier", "generationqualifier", "unstructuredname", "businesscategory", "jurisdictionc", "jurisdictionst",
    "jurisdictionl", "organizationidentifier", "x500uniqueidentifier",
)  # fmt: skip
"""Other names of attributes that texts may hold; the normal form leaves these out."""
_LABEL = "|".join(sorted((*_SPELLINGS, *_IGNORED_LABELS), key=len, reverse=True))
_TYPE = rf"(?:oid\.)?(?:{_LABEL}|\d+(?:\.\d+)+)"
_START = re.compile(rf"\s*({_TYPE})\s*=", re.IGNORECASE)
_SLASHED = re.compile(rf"/(?={_TYPE}=)", re.IGNORECASE)
_MARK = re.compile(r'\\.|[",;+]', re.DOTALL)  # an escaped character, or one with a meaning
_ESCAPE = re.compile(rb"\\([0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPE_OF_OPENSSL = re.compile(rb"\\x([0-9a-fA-F]{2})")

Attribute = tuple[str, str]  # of a name: its label in the normal form, empty if that drops it, and its value


def of_certificate(name: "x509.Name") -> str:
    """Return the normal form of a certificate's subject or issuer. Unknown attributes are dropped."""
    return _normal_form(
        (_OIDS[each.oid.dotted_string], each.value)
        for each in name
        if each.oid.dotted_string in _OIDS and isinstance(each.value, str)
    )


def normalise_name(text: str) -> str:
    """Return the normal form of a distinguished name in any notation. Raises `ValueError`.

    A text that begins with a slash is split at slashes, others at commas. A part without an attribute name belongs to
    the value before it.
    """
    begun = text.lstrip()  # a blank at the end may be escaped
    if begun.startswith("/"):  # a slash may be part of a value: `/C=GR/CN=service/example.com`
        before, *pieces = _SLASHED.split(begun.rstrip())
        if before:
            raise ValueError("this is no distinguished name")
        pairs = [piece.partition("=") for piece in pieces]
        attributes = [
            (_label(name), _ESCAPE_OF_OPENSSL.sub(_unescape, value.encode()).decode()) for name, _, value in pairs
        ]
    else:
        attributes = _comma_separated(begun)
    if not attributes:
        raise ValueError("this is no distinguished name")
    return _normal_form(attributes)


def _normal_form(attributes: Iterable[Attribute]) -> str:
    values: dict[str, list[str]] = {}
    for label, value in attributes:
        values.setdefault(label, []).append(value)
    for label in {"SERIALNUMBER", "CN"} & values.keys():  # the last value counts; an empty one is dropped
        values[label] = values[label][-1:] if values[label][-1] else []
    parts = [_part(label, values[label], _escape) for label in _ESCAPED_LABELS if label in values]
    middle = ",".join(part for part in parts if part)
    # E and DC keep their commas when nothing stands between them (authn contract 10, corner cases).
    before = _part("E", values["E"], str) + "," if "E" in values else ""
    after = "," + _part("DC", values["DC"], str) if "DC" in values else ""
    return before + middle + after


def _part(label: str, values: Sequence[str], write: Callable[[str], str]) -> str:
    return "+".join(f"{label}={write(value)}" for value in values)


def _escape(value: str) -> str:
    shown = re.sub(r'[,+"\\<>;]', r"\\\g<0>", value)
    if shown.startswith(("#", " ")):
        shown = "\\" + shown
    if len(value) > 1 and value.endswith(" "):
        shown = shown[:-1] + "\\ "
    return shown


def _label(name: str) -> str:
    """Return an attribute's label in the normal form; empty if the normal form drops it."""
    known = name.lower().removeprefix("oid.")
    return _OIDS.get(known) or _SPELLINGS.get(known, "")


def _comma_separated(text: str) -> list[Attribute]:
    """Parse a comma form into encoded order: reversed unless the leaf is last."""
    groups: list[list[Attribute]] = []
    for piece, separator in _pieces(text):
        found = _START.match(piece)
        assert found is not None
        attribute = _label(found[1]), _value(piece[found.end() :])
        if separator == "+" and groups:
            groups[-1].append(attribute)
        else:
            groups.append([attribute])
    leafs = [index for index, group in enumerate(groups) if any(label == "CN" for label, _ in group)]
    leaf_is_last = bool(leafs) and leafs[0] > 0 and leafs[-1] == len(groups) - 1
    return [each for group in (groups if leaf_is_last else reversed(groups)) for each in group]


def _pieces(text: str) -> list[tuple[str, str]]:
    """Split at commas, semicolons and pluses before an attribute's name, except escaped or quoted ones."""
    pieces: list[tuple[str, str]] = []
    begin = 1 if text[:1] == "," else 0  # the normal form of a name with nothing but DC
    separator, quoted = "", False
    for found in _MARK.finditer(text, begin):
        mark, after = found[0], found.end()
        if mark == '"':
            quoted = not quoted
        elif mark in (",", ";", "+") and not quoted:
            # The normal form has a comma beside a lone `E` or `DC`.
            is_last = mark == "," and text[after : after + 1] in ("", ",")
            if is_last or _START.match(text, after):
                pieces.append((text[begin : found.start()], separator))
                begin, separator = after, mark
    if quoted:
        raise ValueError("a quotation mark is missing in a distinguished name")
    pieces.append((text[begin:], separator))
    pieces = [piece for piece in pieces if piece[0].strip()]
    if not all(_START.match(piece) for piece, _ in pieces):
        raise ValueError("this is no distinguished name")
    return pieces


def _value(text: str) -> str:
    """Parse a value of a comma form, without blanks around it that are neither escaped nor quoted."""
    value = text.lstrip()
    trimmed = value.rstrip()
    if len(trimmed) < len(value) and (len(trimmed) - len(trimmed.rstrip("\\"))) % 2:
        trimmed += " "
    if trimmed.startswith("#"):
        raise ValueError("a distinguished name in hexadecimal form is not understood")
    if len(trimmed) > 1 and trimmed[0] == trimmed[-1] == '"':
        trimmed = trimmed[1:-1]
    return _ESCAPE.sub(_unescape, trimmed.encode()).decode()  # a UnicodeDecodeError is a ValueError


def _unescape(found: re.Match[bytes]) -> bytes:
    return bytes.fromhex(found[1].decode()) if len(found[1]) == 2 else found[1]
