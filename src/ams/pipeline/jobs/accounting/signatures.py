"""Detached signatures of S/MIME (CMS, RFC 5652): who signed a text, and that it was this text.

What OpenSSL, and so every sender of usage records, makes: one signer, named by issuer and serial number, whose
certificate is inside, with signed attributes; RSA (PKCS #1 v1.5) or elliptic curves, with SHA-2.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import pkcs7
from cryptography.x509.oid import NameOID

from ams.pipeline.errors import Broken

SIGNED_DATA: Final = x509.ObjectIdentifier("1.2.840.113549.1.7.2")
MESSAGE_DIGEST: Final = x509.ObjectIdentifier("1.2.840.113549.1.9.4")
SIGNING_TIME: Final = x509.ObjectIdentifier("1.2.840.113549.1.9.5")

HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "2.16.840.1.101.3.4.2.1": hashes.SHA256(),
    "2.16.840.1.101.3.4.2.2": hashes.SHA384(),
    "2.16.840.1.101.3.4.2.3": hashes.SHA512(),
}
"""What a text may be hashed with, by object identifier. MD5 and SHA-1 can be forged and are refused."""

NAMES: Final = {NameOID.EMAIL_ADDRESS: "emailAddress", NameOID.SERIAL_NUMBER: "serialNumber"}
"""Attributes of names as OpenSSL writes them, where the library has none; any other is written as its numbers."""


@asn1.sequence
class ContentInfo:
    """The outer shell: what it is, and its fields."""

    kind: x509.ObjectIdentifier
    content: Annotated[list[asn1.TLV], asn1.Explicit(0)]


@asn1.sequence
class IssuerAndSerial:
    """How a signature names its certificate."""

    issuer: asn1.TLV
    serial: int


@asn1.sequence
class SignerInfo:
    """The signature itself; `attributes` is what was signed, and holds the hash of the text."""

    version: int
    signer: IssuerAndSerial
    digest: list[asn1.TLV]
    attributes: asn1.TLV
    algorithm: list[asn1.TLV]
    signature: bytes
    unsigned: Annotated[asn1.SetOf[asn1.TLV] | None, asn1.Implicit(1)]


@asn1.sequence
class Attribute:
    """A signed attribute."""

    kind: x509.ObjectIdentifier
    values: asn1.SetOf[asn1.TLV]


@asn1.sequence
class Attributes:
    """Signed attributes, wrapped to be read as a field."""

    all: list[Attribute]


class Signature(NamedTuple):
    """A signature that holds: by whom it was made, and when the signer says so."""

    certificate: x509.Certificate
    signer: str
    """The name in it, in slash form."""
    certificates: list[x509.Certificate]
    """All certificates that came along."""
    time: datetime


def checked(content: bytes, der: bytes) -> Signature:
    """Check a detached signature over `content`; raises `Broken` if it does not hold or cannot be read."""
    try:
        shell = asn1.decode_der(ContentInfo, der)
        if shell.kind != SIGNED_DATA:
            raise Broken("signature: is something else")
        # The last field is the set of signers; with one signer its content is that signer.
        info = asn1.decode_der(SignerInfo, bytes(shell.content[-1].data))
        certificates = pkcs7.load_der_pkcs7_certificates(der)
        attributes = {each.kind: each.values.as_list()[0] for each in _attributes(info)}
        certificate = _certificate_of(info, certificates)
        algorithm = HASHES.get(info.digest[0].parse(x509.ObjectIdentifier).dotted_string)
        if algorithm is None:
            raise Broken("signature: made with a hash that is not SHA-2")
        if hashlib.new(algorithm.name, content).digest() != attributes[MESSAGE_DIGEST].parse(bytes):
            raise Broken("signature: the text was changed after it was signed")
        _verify(certificate, info.signature, _der(0x31, bytes(info.attributes.data)), algorithm)
        signer = slash_form(certificate.subject)
        return Signature(certificate, signer, certificates, _time(attributes.get(SIGNING_TIME)))
    except InvalidSignature as error:
        raise Broken("signature: it does not belong to its certificate") from error
    except Broken:
        raise
    except (ValueError, KeyError, IndexError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise Broken("signature: cannot be read") from error


def slash_form(name: x509.Name) -> str:
    """Return a distinguished name as `/DC=org/DC=example/CN=ce01.site-a.example`."""
    return "".join(f"/{NAMES.get(each.oid, each.rfc4514_attribute_name)}={each.value!s}" for each in name)


def _attributes(info: SignerInfo) -> list[Attribute]:
    if info.attributes.tag_bytes != b"\xa0":
        raise Broken("signature: has no signed attributes")
    wrapped = _der(0x30, _der(0x30, bytes(info.attributes.data)))
    return asn1.decode_der(Attributes, wrapped).all


def _certificate_of(info: SignerInfo, certificates: list[x509.Certificate]) -> x509.Certificate:
    issuer = _der(info.signer.issuer.tag_bytes[0], bytes(info.signer.issuer.data))
    for each in certificates:
        if each.serial_number == info.signer.serial and each.issuer.public_bytes() == issuer:
            return each
    raise Broken("signature: the signer's certificate is not inside")


def _verify(certificate: x509.Certificate, signature: bytes, signed: bytes, algorithm: hashes.HashAlgorithm) -> None:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, signed, padding.PKCS1v15(), algorithm)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, signed, ec.ECDSA(algorithm))
    else:
        raise Broken("signature: made with a key that is neither RSA nor of an elliptic curve")


def _time(value: asn1.TLV | None) -> datetime:
    if value is None:
        return datetime.now(UTC)
    kind = asn1.UTCTime if value.tag_bytes == b"\x17" else asn1.GeneralizedTime
    moment: datetime = value.parse(kind).as_datetime()
    return moment.replace(tzinfo=UTC)


def _der(tag: int, content: bytes) -> bytes:
    """Encode a value of any tag as the library encodes bytes."""
    return bytes([tag]) + asn1.encode_der(content)[1:]
