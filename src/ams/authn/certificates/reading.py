"""Certificates of clients: their fields, names and subjects, read once and carefully (contract 15, A8 and A19).

The library reads a field when it is asked for. Here all are read at one place, and a bad field is one refusal.

The library refuses a whole name for one value whose bytes are not of the alphabet it claims, such as `José` in Latin-1
as T61String. OpenSSL and Go read that, and CAs of the field have signed it. So it is read here, and compared as text.
For a PrintableString it refuses the whole certificate: `load` reads such a value as UTF8String.

The normal form of a subject loses parts, so that two subjects may have one. `unrepresentable` finds those that could: a
binding to one of them knows the digest of the whole subject too.
"""

import contextlib
import datetime
import hashlib
import re
import threading
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type

from ams.authn.values import UNREADABLE
from ams.core.cache import LruCache
from ams.core.clock import Milliseconds
from ams.core.distinguished_names import of_certificate
from ams.core.errors import CertificateRefused

Kind = TypeVar("Kind", bound=x509.ExtensionType)
ComparableName = tuple[tuple[tuple[str, str], ...], ...]  # object identifiers and texts of a name, by its parts
RefusalKind = Literal[
    "unreadable", "expired", "not_yet_valid", "proxy", "chain", "usage", "host",
    "revoked", "unknown", "no_list", "doubt",
]  # fmt: skip
"""How refusals are counted. `doubt`: it is not known whether the certificate was withdrawn."""
KINDS: tuple[RefusalKind, ...] = get_args(RefusalKind)

REMEMBERED = 10_000  # most certificates whose subjects are cached
LONGEST = 2_000  # characters of subject and issuer that are cached: clients may show names of 100 kB, believed or not

_UNWRITABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
"""Control characters are no part of a name, and databases take no NUL."""
_WARNINGS = threading.Lock()
_SUBJECT_UNREADABLE = "Your certificate has a subject that cannot be read"
_SEQUENCE, _SET, _OID, _VERSION, _INTEGER = 0x30, 0x31, 0x06, 0xA0, 0x02
_UTF8, _PRINTABLE = 0x0C, 0x13
_PRINTABLE_TEXT = re.compile(rb"[A-Za-z0-9 '()+,./:=?-]*")
_AMBIGUOUS = frozenset(',+"\\<>;')  # characters that the normal form escapes elsewhere, but not in `E` and `DC`
_UNESCAPED = {"1.2.840.113549.1.9.1": "E", "0.9.2342.19200300.100.1.25": "DC"}
_SINGLE = {"2.5.4.3": "CN", "2.5.4.5": "SERIALNUMBER"}  # of several, the normal form keeps the last


class Refusal(CertificateRefused):
    """A certificate that is not believed; `kind` is one of `KINDS`."""

    def __init__(self, kind: RefusalKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Facts:
    """A certificate whose fields were read."""

    certificate: x509.Certificate
    subject: x509.Name
    issuer: x509.Name
    serial: int
    not_before: Milliseconds
    not_after: Milliseconds
    extensions: x509.Extensions
    shown: bytes = b""  # the certificate as it was signed, where `load` changed it

    def extension(self, kind: type[Kind]) -> Kind | None:
        """Return an extension's value, or None."""
        return next((each.value for each in self.extensions if isinstance(each.value, kind)), None)

    @property
    def is_ca(self) -> bool:
        """Whether it says that it is a CA's."""
        basic = self.extension(x509.BasicConstraints)
        return basic is not None and basic.ca


def load(der: bytes) -> tuple[x509.Certificate, bytes]:
    """Load a certificate; return also what was signed, where that has other bytes. Raises `ValueError`, `IndexError`.

    Real CAs put `*`, `@` and `_` into a PrintableString. Such a value is read as UTF8String, which is as long.
    """
    try:
        return x509.load_der_x509_certificate(der), b""
    except ValueError:
        return x509.load_der_x509_certificate(_with_texts(der)), der


def _with_texts(der: bytes) -> bytes:
    changed = bytearray(der)
    [(_, *whole)] = _spans(der, 0, len(der))
    signed, *_ = _spans(der, *whole)
    fields = [span for span in _spans(der, *signed[1:]) if der[span[0]] != _VERSION]
    for name in (fields[2], fields[4]):  # issuer and subject
        for part in _spans(der, *name[1:]):
            for pair in _spans(der, *part[1:]):
                _, (place, begin, end) = _spans(der, *pair[1:])
                text = der[begin:end]
                if der[place] == _PRINTABLE and text.isascii() and not _PRINTABLE_TEXT.fullmatch(text):
                    changed[place] = _UTF8
    return bytes(changed)


def read(certificate: x509.Certificate) -> Facts:
    """Read a certificate; raise `Refusal` when something in it cannot be read."""
    with quietly():
        try:
            return Facts(
                certificate,
                subject_of(certificate),
                issuer_of(certificate),
                certificate.serial_number,
                milliseconds(certificate.not_valid_before_utc),
                milliseconds(certificate.not_valid_after_utc),
                certificate.extensions,
            )
        except Exception as error:  # parsers raise many kinds, depending on what the client sends
            raise Refusal("unreadable", UNREADABLE) from error


def read_leaf(certificate: x509.Certificate) -> Facts:
    """Read a client's certificate; raise `Refusal` when it cannot be read, or its subject cannot be written down."""
    facts = read(certificate)
    if not all(isinstance(each.value, str) and _UNWRITABLE.search(each.value) is None for each in facts.subject):
        raise Refusal("unreadable", _SUBJECT_UNREADABLE)
    return facts


def milliseconds(moment: datetime.datetime) -> Milliseconds:
    """Return a moment of a certificate or a list."""
    return Milliseconds(int(moment.timestamp()) * 1000)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Read without the library's warnings about unusual values: an operator could not act on them."""
    with _WARNINGS, warnings.catch_warnings(action="ignore"):
        yield


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject and its issuer in normal form; `lost` says why that does not stand for the subject alone."""

    name: str
    sha256: str
    lost: str | None
    issuer: str


class Subjects:
    """Reads subjects, and caches those of the certificates used last."""

    def __init__(self) -> None:
        self._known: LruCache[bytes, Subject] = LruCache(REMEMBERED)

    def of(self, leaf: x509.Certificate) -> tuple[bytes, Subject]:
        """Return the fingerprint of a certificate, and its subject; raise `CertificateRefused`."""
        fingerprint = hashlib.sha256(leaf.public_bytes(Encoding.DER)).digest()
        known = self._known.get(fingerprint)
        if known is None:
            try:
                with quietly():
                    name, issuer = subject_of(leaf), of_certificate(issuer_of(leaf))
                    known = Subject(of_certificate(name), subject_sha256(name), unrepresentable(name), issuer)
            except (ValueError, TypeError):  # values that are no text of the encoding they claim
                raise CertificateRefused(_SUBJECT_UNREADABLE) from None
            if len(known.name) + len(known.issuer) <= LONGEST:
                self._known.put(fingerprint, known)
        return fingerprint, known


def subject_sha256(name: x509.Name) -> str:
    """Return the SHA-256 of a whole subject (DER), in hexadecimal digits."""
    return hashlib.sha256(name.public_bytes()).hexdigest()


def unrepresentable(name: x509.Name) -> str | None:
    """Return why the normal form of a subject does not stand for it alone; None: it does."""
    attributes = list(name)
    if not attributes:
        return "it is empty"
    for oid, count in Counter(each.oid.dotted_string for each in attributes).items():
        if oid in _SINGLE and count > 1:
            return f"it has several {_SINGLE[oid]}"
    return next((reason for each in attributes if (reason := _lost(each))), None)


def _lost(attribute: x509.NameAttribute[str | bytes]) -> str:
    value = attribute.value
    if not isinstance(value, str) or not of_certificate(x509.Name([attribute])):
        return f"its {attribute.rfc4514_attribute_name} is not in the normal form"
    label = _UNESCAPED.get(attribute.oid.dotted_string)
    if label and (_AMBIGUOUS.intersection(value) or value != value.strip() or value.startswith("#")):
        return f"its {label} has characters that are not escaped in the normal form"
    return ""


def subject_of(certificate: x509.Certificate) -> x509.Name:
    """Return the subject of a certificate; raise `ValueError` for one that cannot be read."""
    try:
        return certificate.subject
    except ValueError:
        return _name(_names_of(certificate)[1])


def issuer_of(certificate: x509.Certificate) -> x509.Name:
    """Return the issuer of a certificate; raise `ValueError` for one that cannot be read."""
    try:
        return certificate.issuer
    except ValueError:
        return _name(_names_of(certificate)[0])


def issuer_of_list(crl: x509.CertificateRevocationList) -> x509.Name:
    """Return the issuer of a list of withdrawn certificates; raise `ValueError` for one that cannot be read."""
    try:
        return crl.issuer
    except ValueError:
        fields = [each for each in _members(_content(crl.tbs_certlist_bytes, _SEQUENCE)) if each[0] != _INTEGER]
        return _name(fields[1][1])


def comparable(name: x509.Name) -> ComparableName:
    """Return a name as it is compared: text, whatever its encoding, case and number of blanks (RFC 5280, 7.1)."""
    return tuple(tuple(sorted((each.oid.dotted_string, _folded(each.value)) for each in part)) for part in name.rdns)


def _folded(value: str | bytes) -> str:
    text = value if isinstance(value, str) else value.hex()
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _names_of(certificate: x509.Certificate) -> tuple[bytes, bytes]:
    fields = _members(_content(certificate.tbs_certificate_bytes, _SEQUENCE))
    _serial, _algorithm, issuer, _validity, subject, *_ = [value for tag, value in fields if tag != _VERSION]
    return issuer, subject


def _name(name: bytes) -> x509.Name:
    parts = []
    for tag, part in _members(name):
        if tag != _SET:
            raise ValueError("a name is of sets")
        parts.append(x509.RelativeDistinguishedName([_attribute(each) for _, each in _members(part)]))
    return x509.Name(parts)


def _attribute(pair: bytes) -> x509.NameAttribute[str]:
    (kind, oid), (tag, value) = _members(pair)
    if kind != _OID or tag not in _TEXTS:
        raise ValueError("a value that is no text")
    # The library checks what callers make, such as that a country has two letters; this was signed as it is.
    return x509.NameAttribute(
        x509.ObjectIdentifier(_dotted(oid)), _TEXTS[tag](value), _type=_ASN1Type.UTF8String, _validate=False
    )


def _dotted(oid: bytes) -> str:
    numbers, number = [], 0
    for each in oid:
        number = number << 7 | each & 0x7F
        if not each & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2) if numbers else 0
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]])) if numbers else ""


def _content(der: bytes, tag: int) -> bytes:
    [(found, content)] = _members(der)
    if found != tag:
        raise ValueError("another type")
    return content


def _members(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tags and values in DER; raise `ValueError` where one is cut off."""
    return ((content[place], content[begin:end]) for place, begin, end in _spans(content, 0, len(content)))


def _spans(content: bytes, place: int, limit: int) -> Iterator[tuple[int, int, int]]:
    """Yield the place of each tag in a part of DER, and where its value begins and ends; raise `ValueError`."""
    while place < limit:
        header = content[place : min(place + 6, limit)]
        if len(header) < 2:
            raise ValueError("cut off")
        length, begin = header[1], place + 2
        if length & 0x80:
            count = length & 0x7F
            length, begin = int.from_bytes(content[begin : begin + count]), begin + count
        if begin + length > limit:
            raise ValueError("cut off")
        yield place, begin, begin + length
        place = begin + length


def _old_letters(value: bytes) -> str:
    """Decode T61String: UTF-8 where it is that, else Latin-1, as OpenSSL and Go do."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


_TEXTS: dict[int, Callable[[bytes], str]] = {
    0x0C: bytes.decode,
    0x12: lambda value: value.decode("ascii"),
    0x13: lambda value: value.decode("ascii"),
    0x14: _old_letters,
    0x16: _old_letters,
    0x1C: lambda value: value.decode("utf-32-be"),
    0x1E: lambda value: value.decode("utf-16-be"),
}
"""By the tag of ASN.1: UTF8String, numeric, printable, T61, IA5, universal, BMP. OpenSSL reads no other."""
