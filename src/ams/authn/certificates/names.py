"""Names of certificates and lists, also of those whose letters are encoded as nobody does any more.

The library refuses a whole name for one value whose bytes are not of the alphabet it claims, such as `José` in Latin-1
as T61String. OpenSSL and Go read that, and CAs of the field have signed it. Such a name is read here, and names are
compared as text.
"""

import unicodedata
from collections.abc import Callable, Iterator

from cryptography import x509
from cryptography.x509.name import _ASN1Type

ComparableName = tuple[tuple[tuple[str, str], ...], ...]
"""Object identifiers and texts of a name, by its parts."""

_SEQUENCE, _SET, _OID, _VERSION, _INTEGER = 0x30, 0x31, 0x06, 0xA0, 0x02


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


def subject_of(certificate: x509.Certificate) -> x509.Name:
    """Return the subject of a certificate; raise `ValueError` for one that cannot be read."""
    try:
        return certificate.subject
    except ValueError:
        return _read(_names_of(certificate)[1])


def issuer_of(certificate: x509.Certificate) -> x509.Name:
    """Return the issuer of a certificate; raise `ValueError` for one that cannot be read."""
    try:
        return certificate.issuer
    except ValueError:
        return _read(_names_of(certificate)[0])


def issuer_of_list(crl: x509.CertificateRevocationList) -> x509.Name:
    """Return the issuer of a list of withdrawn certificates; raise `ValueError` for one that cannot be read."""
    try:
        return crl.issuer
    except ValueError:
        fields = [each for each in _members(_content(crl.tbs_certlist_bytes, _SEQUENCE)) if each[0] != _INTEGER]
        return _read(fields[1][1])


def comparable(name: x509.Name) -> ComparableName:
    """Return a name as it is compared: text, whatever its encoding, case and number of blanks (RFC 5280, 7.1)."""
    return tuple(tuple(sorted((each.oid.dotted_string, _folded(each.value)) for each in part)) for part in name.rdns)


def _folded(value: str | bytes) -> str:
    text = value if isinstance(value, str) else value.hex()
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _names_of(certificate: x509.Certificate) -> tuple[bytes, bytes]:
    """Return the contents of issuer and subject."""
    fields = _members(_content(certificate.tbs_certificate_bytes, _SEQUENCE))
    _serial, _algorithm, issuer, _validity, subject, *_ = [value for tag, value in fields if tag != _VERSION]
    return issuer, subject


def _read(name: bytes) -> x509.Name:
    """Read the content of a name; raise `ValueError`."""
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
    place = 0
    while place < len(content):
        header = content[place : place + 6]
        if len(header) < 2:
            raise ValueError("cut off")
        length, begin = header[1], place + 2
        if length & 0x80:
            count = length & 0x7F
            length, begin = int.from_bytes(content[begin : begin + count]), begin + count
        if begin + length > len(content):
            raise ValueError("cut off")
        yield header[0], content[begin : begin + length]
        place = begin + length
