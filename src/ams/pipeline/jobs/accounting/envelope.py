"""The envelopes usage records travel in: S/MIME, signed, encrypted and then signed inside, or none.

Signatures are detached (CMS, RFC 5652), as OpenSSL makes them, and so every sender: one signer, named by issuer and
serial number, whose certificate is inside, with signed attributes; RSA (PKCS #1 v1.5) or elliptic curves, with SHA-2.

A sender's identity is the name in the signing certificate. Without authorities (`ca`) the signature must match the
enclosed certificate and the text, but anyone can make such a certificate. With authorities, the certificate must also
come from one of them and be valid at the signing time, by the signer's clock. Records are read long after they were
sent, so today's date would refuse good ones.
"""

import base64
import binascii
import hashlib
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.message import Message
from email.parser import BytesHeaderParser
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs7
from cryptography.x509 import verification
from cryptography.x509.oid import NameOID

from ams.pipeline.errors import Broken, WrongOption

SIGNED_DATA: Final = x509.ObjectIdentifier("1.2.840.113549.1.7.2")
MESSAGE_DIGEST: Final = x509.ObjectIdentifier("1.2.840.113549.1.9.4")
SIGNING_TIME: Final = x509.ObjectIdentifier("1.2.840.113549.1.9.5")

HASHES: Final[Mapping[str, hashes.HashAlgorithm]] = {
    "2.16.840.1.101.3.4.2.1": hashes.SHA256(),
    "2.16.840.1.101.3.4.2.2": hashes.SHA384(),
    "2.16.840.1.101.3.4.2.3": hashes.SHA512(),
}  # accepted hashes by object identifier; MD5 and SHA-1 can be forged and are refused

# Attributes of names as OpenSSL writes them, where the library has none; any other is written as its numbers.
NAMES: Final = {NameOID.EMAIL_ADDRESS: "emailAddress", NameOID.SERIAL_NUMBER: "serialNumber"}


@asn1.sequence
class _ContentInfo:
    kind: x509.ObjectIdentifier
    content: Annotated[list[asn1.TLV], asn1.Explicit(0)]


@asn1.sequence
class _IssuerAndSerial:
    issuer: asn1.TLV
    serial: int


@asn1.sequence
class _SignerInfo:
    """The signature itself; `attributes` is what was signed, and holds the hash of the text."""

    version: int
    signer: _IssuerAndSerial
    digest: list[asn1.TLV]
    attributes: asn1.TLV
    algorithm: list[asn1.TLV]
    signature: bytes
    unsigned: Annotated[asn1.SetOf[asn1.TLV] | None, asn1.Implicit(1)]


@asn1.sequence
class _Attribute:
    kind: x509.ObjectIdentifier
    values: asn1.SetOf[asn1.TLV]


@asn1.sequence
class _Attributes:
    all: list[_Attribute]


@asn1.sequence
class _Certificates:
    all: list[asn1.TLV]


class Signature(NamedTuple):
    """A valid signature: its signer, and the time that the signer names."""

    certificate: x509.Certificate
    signer: str
    certificates: list[x509.Certificate]
    time: datetime


def check_signature(content: bytes, der: bytes) -> Signature:
    """Check a detached signature over `content`; raises `Broken` if it does not hold or cannot be read."""
    try:
        shell = asn1.decode_der(_ContentInfo, der)
        if shell.kind != SIGNED_DATA:
            raise Broken("signature: is something else")
        # The last field is the set of signers; with one signer its content is that signer.
        info = asn1.decode_der(_SignerInfo, bytes(shell.content[-1].data))
        certificates = _enclosed_certificates(shell.content)
        attributes = {each.kind: each.values.as_list()[0] for each in _signed_attributes(info)}
        certificate = _certificate_of(info, certificates)
        algorithm = HASHES.get(info.digest[0].parse(x509.ObjectIdentifier).dotted_string)
        if algorithm is None:
            raise Broken("signature: made with a hash that is not SHA-2")
        if hashlib.new(algorithm.name, content).digest() != attributes[MESSAGE_DIGEST].parse(bytes):
            raise Broken("signature: the text was changed after it was signed")
        _verify(certificate, info.signature, _der(0x31, bytes(info.attributes.data)), algorithm)
        parts = [(NAMES.get(each.oid, each.rfc4514_attribute_name), each.value) for each in certificate.subject]
        signer = "".join(f"/{name}={value!s}" for name, value in parts)
        return Signature(certificate, signer, certificates, _signing_time(attributes.get(SIGNING_TIME)))
    except InvalidSignature as error:
        raise Broken("signature: it does not belong to its certificate") from error
    except Broken:
        raise
    except (ValueError, KeyError, IndexError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise Broken("signature: cannot be read") from error


def _signed_attributes(info: _SignerInfo) -> list[_Attribute]:
    if info.attributes.tag_bytes != b"\xa0":
        raise Broken("signature: has no signed attributes")
    wrapped = _der(0x30, _der(0x30, bytes(info.attributes.data)))
    return asn1.decode_der(_Attributes, wrapped).all


def _enclosed_certificates(signed_data: list[asn1.TLV]) -> list[x509.Certificate]:
    """Return those of a message; the library's own function takes damaged ones for BER, with a warning."""
    for field in signed_data:
        if field.tag_bytes == b"\xa0":
            wrapped = _der(0x30, _der(0x30, bytes(field.data)))
            found = asn1.decode_der(_Certificates, wrapped).all
            return [x509.load_der_x509_certificate(_der(each.tag_bytes[0], bytes(each.data))) for each in found]
    return []


def _certificate_of(info: _SignerInfo, certificates: list[x509.Certificate]) -> x509.Certificate:
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


def _signing_time(value: asn1.TLV | None) -> datetime:
    if value is None:
        return datetime.now(UTC)
    kind = asn1.UTCTime if value.tag_bytes == b"\x17" else asn1.GeneralizedTime
    moment: datetime = value.parse(kind).as_datetime()
    return moment.replace(tzinfo=UTC)


def _der(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + asn1.encode_der(content)[1:]


MIME: Final = re.compile(rb"\s*(?:MIME-Version|Content-[A-Za-z-]+):", re.IGNORECASE)
END_OF_HEADERS: Final = re.compile(rb"\r?\n\r?\n")
ENCRYPTED: Final = ("application/pkcs7-mime", "application/x-pkcs7-mime")
MAX_NESTED_ENVELOPES: Final = 3  # an encrypted text that is signed inside has two envelopes


class EnvelopeTrust(NamedTuple):
    """Files to verify senders and decrypt texts; all may be absent."""

    ca: str = ""  # a PEM file, or a folder of them, of the authorities whose certificates are believed
    key: str = ""
    """A PEM file with the private key, without a password, that texts are encrypted for; read once in a run."""
    certificate: str = ""  # a PEM file with the certificate of that key; read once in a run

    def check(self) -> None:
        """Read all files once; raises `WrongOption` for one that is missing or holds something else."""
        if bool(self.key) != bool(self.certificate):
            raise WrongOption("key" if self.certificate else "certificate", "key and certificate go together")
        readers: dict[str, Callable[[str], object]] = {"ca": authorities, "certificate": _certificate, "key": _key}
        for option, read in readers.items():
            path = getattr(self, option)
            try:
                if path:
                    read(path)
            except OSError as error:
                raise WrongOption(option, f"cannot read {path}: {error.strerror}") from error
            except (ValueError, TypeError) as error:
                raise WrongOption(option, f"{path} holds something else") from error


class Opened(NamedTuple):
    """Content of an envelope."""

    text: bytes
    signer: str  # the sender's name in slash form; empty when nothing was signed


def open_envelope(data: bytes, trust: EnvelopeTrust, depth: int = 0) -> Opened:
    """Open an envelope; raises `Broken` if it cannot be opened or its signature does not hold."""
    if not MIME.match(data):
        return Opened(data, "")
    if depth == MAX_NESTED_ENVELOPES:
        raise Broken("envelope: too many, one in the other")
    headers, body = _headers_and_body(data)
    kind = headers.get_content_type()
    if kind == "multipart/signed":
        content, signature_part = _parts(body, headers.get_boundary() or "")
        # Line ends are CR LF when they are signed; transports change them.
        signed = content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        signature = check_signature(signed, _decode_body(*_headers_and_body(signature_part)))
        _check_certificate(signature, trust)
        return Opened(_decode_body(*_headers_and_body(content)), signature.signer)
    if kind in ENCRYPTED:
        return open_envelope(_decrypt(headers, body, trust), trust, depth + 1)
    if kind in ("text/plain", "text/xml", "application/json", "application/xml"):
        return Opened(_decode_body(headers, body), "")
    raise Broken(f"envelope: its content type is {kind[:60]!r}")


def _headers_and_body(data: bytes) -> tuple[Message, bytes]:
    if not MIME.match(data):
        return Message(), data
    data = data.lstrip()
    end = END_OF_HEADERS.search(data)
    if end is None:
        raise Broken("envelope: ends in its headers")
    return BytesHeaderParser().parsebytes(data[: end.end()]), data[end.end() :]


def _parts(body: bytes, boundary: str) -> tuple[bytes, bytes]:
    """Return the two parts as they were sent, byte for byte: the line end before a boundary belongs to the boundary."""
    mark = re.escape(boundary.encode("utf-8", "replace"))
    line = re.compile(rb"(?:\A|\r?\n)--" + mark + rb"(?:--)?[ \t]*(?:\r?\n|\Z)")
    places = [match.span() for match in line.finditer(body)]
    if not boundary or len(places) != 3:
        raise Broken("envelope: does not have one text and one signature")
    (_, first), (first_end, second), (second_end, _) = places
    return body[first:first_end], body[second:second_end]


def _decode_body(headers: Message, body: bytes) -> bytes:
    encoding = str(headers.get("Content-Transfer-Encoding", "binary")).strip().lower()
    if encoding in ("7bit", "8bit", "binary"):
        return body
    try:
        if encoding == "base64":
            return base64.b64decode(body)
        if encoding == "quoted-printable":
            return binascii.a2b_qp(body)
    except ValueError as error:
        raise Broken(f"envelope: is not {encoding}") from error
    raise Broken(f"envelope: its encoding is {encoding[:40]!r}")


def _decrypt(headers: Message, body: bytes, trust: EnvelopeTrust) -> bytes:
    if headers.get_param("smime-type", "enveloped-data") != "enveloped-data":
        raise Broken("envelope: signed but not as a part beside the text")
    if not trust.key:
        raise Broken("encrypted")
    try:
        encrypted = _decode_body(headers, body)
        return pkcs7.pkcs7_decrypt_der(encrypted, _certificate(trust.certificate), _key(trust.key), [])
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Broken("encrypted: not for the key given, or in a way that cannot be opened") from error


def _check_certificate(signature: Signature, trust: EnvelopeTrust) -> None:
    certificate = signature.certificate
    if not certificate.not_valid_before_utc <= signature.time <= certificate.not_valid_after_utc:
        raise Broken("signature: made when its certificate was not valid")
    if not trust.ca:
        return
    # Certificates of the grid are not those of web sites: what they may be used for is up to their authority.
    policy = verification.PolicyBuilder().store(verification.Store(authorities(trust.ca))).time(signature.time)
    anything, agnostic = verification.ExtensionPolicy.permit_all(), verification.Criticality.AGNOSTIC
    authority = anything.require_present(x509.BasicConstraints, agnostic, _is_authority)
    policy = policy.extension_policies(ca_policy=authority, ee_policy=anything)
    others = [each for each in signature.certificates if each != certificate]
    try:
        policy.build_client_verifier().verify(certificate, others)
    except verification.VerificationError as error:
        raise Broken("signature: its certificate is of no authority we know") from error


def _is_authority(_: verification.Policy, __: x509.Certificate, constraints: x509.BasicConstraints) -> None:
    if not constraints.ca:
        raise ValueError("not an authority")


def authorities(path: str) -> list[x509.Certificate]:
    """Return the certificates of a PEM file or a folder, read anew each minute; raises `ValueError` for none."""
    return _authorities(path, int(time.monotonic()) // 60)


@lru_cache(maxsize=4)
def _authorities(path: str, _minute: int) -> list[x509.Certificate]:
    files = sorted(each for each in Path(path).iterdir() if each.is_file()) if Path(path).is_dir() else [Path(path)]
    texts = [text for each in files if b"-----BEGIN CERTIFICATE-----" in (text := each.read_bytes())]
    if not texts:
        raise ValueError(f"no certificate in {path}")
    return [certificate for text in texts for certificate in x509.load_pem_x509_certificates(text)]


@lru_cache
def _certificate(path: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(Path(path).read_bytes())


@lru_cache
def _key(path: str) -> RSAPrivateKey:
    key = load_pem_private_key(Path(path).read_bytes(), None)
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("not an RSA key")
    return key
