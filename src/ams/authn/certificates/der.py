"""DER of certificates, lists and OCSP answers that their library refuses. OpenSSL and Go accept them.

The library refuses a whole name for one value with bytes outside its alphabet, such as `José` in Latin-1 as T61String.
Real CAs have signed such names. `read_name` parses them; names are compared as text.

For a PrintableString the library refuses the whole certificate, list or answer. `parse_mended` parses such a value as
UTF8String. The parsed bytes then differ from the signed ones; signatures are checked over the latter.
"""

import base64
import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type

T = TypeVar("T")
Signed = TypeVar("Signed", x509.Certificate, x509.CertificateRevocationList)

PEM_BLOCK = re.compile(rb"\s*-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_BOOLEAN, _INTEGER, _OCTETS, _OID, _VERSION = 0x01, 0x02, 0x04, 0x06, 0xA0
_CONSTRUCTED = 0x20  # bit of tags of constructed values
_UTF8, _NUMERIC, _PRINTABLE, _T61, _IA5, _UNIVERSAL, _BMP = 0x0C, 0x12, 0x13, 0x14, 0x16, 0x1C, 0x1E  # texts
_PRINTABLE_TEXT = re.compile(rb"[A-Za-z0-9 '()+,./:=?-]*")
ISSUER, SUBJECT = 1, 3  # field numbers in the signed body, version and serial number not counted
MAX_VALUES = 1_000_000  # values visited in one mend: a second of work, and a list of 250,000 entries


def to_der(data: bytes, label: bytes = b"") -> bytes:
    """Return the DER of PEM or DER: of the PEM block with this label if there is one. Raises `ValueError`."""
    if not PEM_BLOCK.match(data):
        return data
    blocks = [(each[1], each[2]) for each in PEM_BLOCK.finditer(data)]
    text = next((text for found, text in blocks if found == label), blocks[0][1])
    return base64.b64decode(b"".join(text.split()), validate=True)


def parse_mended(parse: Callable[[bytes], T], der: bytes) -> tuple[T, bytes]:
    """Parse DER, if needed with invalid PrintableStrings as UTF8String. CAs put `*`, `@` and `_` into them.

    Returns also the parsed bytes: as many as in `der`; `der` itself if nothing was mended. Raises `ValueError`.
    """
    try:
        return parse(der), der
    except ValueError:
        text = mend_texts(der)
        return parse(text), text


def find_original(part: bytes, text: bytes, der: bytes) -> bytes:
    """Return the bytes of `der` at the place of `part`; `text` is what `parse_mended` parsed for `der`."""
    if text is der:
        return part
    place = text.index(part)
    return der[place : place + len(part)]


def read_extensions(signed: Signed, load: Callable[[bytes], Signed]) -> x509.Extensions:
    """Return extensions, perhaps with `?` for letters in names of authorities. Raises `ValueError`."""
    try:
        return signed.extensions
    except ValueError:
        return load_mended(signed, load).extensions


def load_mended(signed: Signed, load: Callable[[bytes], Signed]) -> Signed:
    """Return a certificate or list with parsable extensions; a long list takes a second. Raises `ValueError`."""
    return load(mend_texts(signed.public_bytes(Encoding.DER), is_lossy=True))


def mend_texts(der: bytes, *, is_lossy: bool = False) -> bytes:
    """Return the DER with every invalid PrintableString as UTF8String.

    With `is_lossy`, texts in Latin-1 have `?` for non-ASCII letters: as UTF-8 they would be longer. Raises `ValueError`
    for a truncated value, or more than `MAX_VALUES`.
    """
    changed, place, before, values = bytearray(der), 0, 0, 0
    while place < len(der):
        values += 1
        if values > MAX_VALUES:
            raise ValueError("it has too many values")
        tag, (begin, end) = der[place], _value(der, place, len(der))
        if tag == _PRINTABLE:
            text = der[begin:end]
            if text.isascii() and not _PRINTABLE_TEXT.fullmatch(text):
                changed[place] = _UTF8
        elif is_lossy and tag in (_T61, _IA5):
            changed[begin:end] = _old_letters(der[begin:end]).encode("ascii", "replace").ljust(end - begin)
        is_content = False
        if tag == _OCTETS and before in (_OID, _BOOLEAN):  # extensions name authorities too, and mostly contain DER
            with contextlib.suppress(ValueError):
                is_content = _value(der, begin, end)[1] == end
        before, place = tag, begin if tag & _CONSTRUCTED or is_content else end
    return bytes(changed)


def read_signed_body(der: bytes) -> bytes:
    """Return the signed part of a certificate or a list."""
    [(_, *content)] = _spans(der, 0, len(der))
    place, _, end = next(_spans(der, *content))
    return der[place:end]


def read_field(signed: bytes, number: int) -> bytes:
    """Return a field of a signed body: `ISSUER`, or of a certificate `SUBJECT`."""
    [(_, *content)] = _spans(signed, 0, len(signed))
    fields = [span for span in _spans(signed, *content) if signed[span[0]] not in (_VERSION, _INTEGER)]
    place, _, end = fields[number]
    return signed[place:end]


def read_name(signed: bytes, number: int) -> x509.Name:
    """Read a name that the library has parsed but whose texts it refuses. Raises `ValueError`."""
    [(_, parts)] = _members(read_field(signed, number))
    pairs = [[_attribute(pair) for _, pair in _members(part)] for _, part in _members(parts)]
    return x509.Name([x509.RelativeDistinguishedName(each) for each in pairs])


def _attribute(pair: bytes) -> x509.NameAttribute[str]:
    (_, oid), (tag, value) = _members(pair)
    if tag not in _TEXTS:
        raise ValueError("a value that is no text")
    # The library validates new values, such as two letters of a country; this one is signed already.
    return x509.NameAttribute(
        x509.ObjectIdentifier(_format_oid(oid)), _TEXTS[tag](value), _type=_ASN1Type.UTF8String, _validate=False
    )


def _format_oid(oid: bytes) -> str:
    numbers, number = [], 0
    for each in oid:
        number = number << 7 | each & 0x7F
        if not each & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2) if numbers else 0
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]])) if numbers else ""


def _members(content: bytes) -> Iterator[tuple[int, bytes]]:
    return ((content[place], content[begin:end]) for place, begin, end in _spans(content, 0, len(content)))


def _spans(content: bytes, place: int, limit: int) -> Iterator[tuple[int, int, int]]:
    """Yield each tag's place in a part of DER, with start and end of its value. Raises `ValueError`."""
    while place < limit:
        begin, end = _value(content, place, limit)
        yield place, begin, end
        place = end


def _value(content: bytes, place: int, limit: int) -> tuple[int, int]:
    """Return start and end of the value after a tag. Raises `ValueError` if it is truncated."""
    begin = place + 2
    if begin > limit:
        raise ValueError("cut off")
    length = content[place + 1]
    if length & 0x80:
        count = length & 0x7F
        length, begin = int.from_bytes(content[begin : begin + count]), begin + count
    if begin + length > limit:
        raise ValueError("cut off")
    return begin, begin + length


def _old_letters(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:  # then it is Latin-1 to OpenSSL and Go
        return value.decode("latin-1")


_TEXTS: dict[int, Callable[[bytes], str]] = {  # by ASN.1 tag, as OpenSSL reads them
    _UTF8: bytes.decode,
    **dict.fromkeys((_NUMERIC, _PRINTABLE), lambda value: value.decode("ascii")),
    **dict.fromkeys((_T61, _IA5), _old_letters),
    _UNIVERSAL: lambda value: value.decode("utf-32-be"),
    _BMP: lambda value: value.decode("utf-16-be"),
}
