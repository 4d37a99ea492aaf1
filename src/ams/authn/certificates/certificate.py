"""Certificates of clients: parses their fields, names and subjects once (contract 15, A8 and A19).

The library parses a field on access. Here all are parsed in one place, and a bad field is one refusal.

The normal form of a subject is lossy, so two subjects may share it. `unrepresentable` finds those that could. A binding
to such a subject also has the digest of the whole subject.
"""

import contextlib
import datetime
import hashlib
import re
import threading
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from ams.authn.certificates.der import ISSUER, SUBJECT, parse_mended, read_extensions, read_name
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
"""Kinds of refusals in counters. `doubt`: the revocation status is unknown."""
KINDS: tuple[RefusalKind, ...] = get_args(RefusalKind)

MAX_CACHED_SUBJECTS = 10_000  # certificates whose subjects are cached
MAX_CHARACTERS = 2_000  # characters of a cached subject and issuer: any client may send names of 100 kB

_CONTROLS = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # not valid in names; databases accept no NUL
_WARNINGS = threading.Lock()
_SUBJECT_UNREADABLE = "Your certificate has a subject that cannot be read"
_AMBIGUOUS_MARKS = frozenset(',+"\\<>;')  # escaped by the normal form elsewhere, but not in `E` and `DC`
_UNESCAPED_TYPES = {"1.2.840.113549.1.9.1": "E", "0.9.2342.19200300.100.1.25": "DC"}
_SINGLE_TYPES = {"2.5.4.3": "CN", "2.5.4.5": "SERIALNUMBER"}  # of several, the normal form keeps the last


class CertificateRefusal(CertificateRefused):
    """A refused certificate; `kind` is one of `KINDS`."""

    def __init__(self, kind: RefusalKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Facts:
    """The parsed fields of a certificate."""

    certificate: x509.Certificate
    subject: x509.Name
    issuer: x509.Name
    serial: int
    not_before: Milliseconds
    not_after: Milliseconds
    extensions: x509.Extensions
    der: bytes  # the signed bytes, if `load` changed texts of `certificate`

    def extension(self, kind: type[Kind]) -> Kind | None:
        """Return an extension's value, or None."""
        return next((each.value for each in self.extensions if isinstance(each.value, kind)), None)

    @property
    def is_ca(self) -> bool:
        """True if it claims to be a CA's."""
        basic = self.extension(x509.BasicConstraints)
        return basic is not None and basic.ca

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of the whole certificate."""
        return hashlib.sha256(self.der).digest()


def load(der: bytes) -> tuple[x509.Certificate, bytes]:
    """Load a certificate. Returns also the signed bytes if they differ. Raises `ValueError`."""
    try:
        certificate, text = parse_mended(x509.load_der_x509_certificate, der)
    except x509.InvalidVersion as error:
        raise ValueError(str(error)) from error
    return certificate, b"" if text is der else der


def read_der(der: bytes) -> Facts:
    """Parse a certificate. Raises `CertificateRefusal` if a part of it cannot be parsed."""
    try:
        return read_certificate(*load(der))
    except ValueError as error:
        raise CertificateRefusal("unreadable", UNREADABLE) from error


def read_certificate(certificate: x509.Certificate, signed: bytes = b"") -> Facts:
    """Parse a loaded certificate; `signed` is from `load`. Raises as `read_der`."""
    with ignore_warnings():
        try:
            return Facts(
                certificate, subject_of(certificate), issuer_of(certificate), certificate.serial_number,
                milliseconds(certificate.not_valid_before_utc), milliseconds(certificate.not_valid_after_utc),
                read_extensions(certificate, x509.load_der_x509_certificate),
                signed or certificate.public_bytes(Encoding.DER),
            )  # fmt: skip
        except Exception as error:  # parsers raise many kinds of errors, depending on the client's data
            raise CertificateRefusal("unreadable", UNREADABLE) from error


def read_leaf(certificate: x509.Certificate, signed: bytes = b"") -> Facts:
    """Parse a client's certificate. Raises `CertificateRefusal` if that fails, or its subject has no written form."""
    facts = read_certificate(certificate, signed)
    if not all(isinstance(each.value, str) and _CONTROLS.search(each.value) is None for each in facts.subject):
        raise CertificateRefusal("unreadable", _SUBJECT_UNREADABLE)
    return facts


def milliseconds(moment: datetime.datetime) -> Milliseconds:
    """Convert a time in a certificate or a list."""
    return Milliseconds(int(moment.timestamp()) * 1000)


@contextlib.contextmanager
def ignore_warnings() -> Iterator[None]:
    """Suppress the library's warnings about unusual values: an operator could not act on them."""
    with _WARNINGS, warnings.catch_warnings(action="ignore"):
        yield


class Subject(NamedTuple):
    """A subject and its issuer in normal form; `lost`: why the normal form is ambiguous."""

    name: str
    sha256: str
    lost: str | None
    issuer: str


class Subjects:
    """Parses subjects, and caches those of the certificates used last."""

    def __init__(self) -> None:
        self._known: LruCache[bytes, Subject] = LruCache(MAX_CACHED_SUBJECTS)

    def of(self, leaf: x509.Certificate) -> tuple[bytes, Subject]:
        """Return the fingerprint and subject of a certificate. Raises `CertificateRefused`."""
        fingerprint = hashlib.sha256(leaf.public_bytes(Encoding.DER)).digest()
        if (known := self._known.get(fingerprint)) is None:
            try:
                with ignore_warnings():
                    name, issuer = subject_of(leaf), of_certificate(issuer_of(leaf))
                    known = Subject(of_certificate(name), subject_sha256(name), unrepresentable(name), issuer)
            except (ValueError, TypeError):  # values that are not text in their declared encoding
                raise CertificateRefused(_SUBJECT_UNREADABLE) from None
            if len(known.name) + len(known.issuer) <= MAX_CHARACTERS:
                self._known.put(fingerprint, known)
        return fingerprint, known


def subject_sha256(name: x509.Name) -> str:
    """Return the SHA-256 of a whole subject (DER), in hexadecimal digits."""
    return hashlib.sha256(name.public_bytes()).hexdigest()


def unrepresentable(name: x509.Name) -> str | None:
    """Return why the normal form of a subject is ambiguous, or None."""
    if not (attributes := list(name)):
        return "it is empty"
    for oid, count in Counter(each.oid.dotted_string for each in attributes).items():
        if oid in _SINGLE_TYPES and count > 1:
            return f"it has several {_SINGLE_TYPES[oid]}"
    return next((reason for each in attributes if (reason := _ambiguity(each))), None)


def _ambiguity(attribute: x509.NameAttribute[str | bytes]) -> str:
    value = attribute.value
    if not isinstance(value, str) or not of_certificate(x509.Name([attribute])):
        return f"its {attribute.rfc4514_attribute_name} is not in the normal form"
    label = _UNESCAPED_TYPES.get(attribute.oid.dotted_string)
    if label and (_AMBIGUOUS_MARKS.intersection(value) or value != value.strip() or value.startswith("#")):
        return f"its {label} has characters that are not escaped in the normal form"
    return ""


def subject_of(certificate: x509.Certificate) -> x509.Name:
    """Return the subject of a certificate. Raises `ValueError`."""
    try:
        return certificate.subject
    except ValueError:
        return read_name(certificate.tbs_certificate_bytes, SUBJECT)


def read_subject(der: bytes) -> x509.Name:
    """Return the subject of a certificate. Raises `ValueError`."""
    with ignore_warnings():
        return subject_of(load(der)[0])


def issuer_of(signed: x509.Certificate | x509.CertificateRevocationList) -> x509.Name:
    """Return the issuer of a certificate or of a revocation list. Raises `ValueError`."""
    try:
        return signed.issuer
    except ValueError:
        if isinstance(signed, x509.CertificateRevocationList):
            return read_name(signed.tbs_certlist_bytes, ISSUER)
        return read_name(signed.tbs_certificate_bytes, ISSUER)


def has_signed(signer: x509.Certificate, signature: bytes, body: bytes, algorithm: hashes.HashAlgorithm | None) -> bool:
    """Return whether a certificate's key made a signature; `algorithm` is None for one without a hash."""
    key = signer.public_key()
    try:
        if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
            key.verify(signature, body)
        elif isinstance(key, rsa.RSAPublicKey) and algorithm is not None:
            key.verify(signature, body, padding.PKCS1v15(), algorithm)
        elif isinstance(key, ec.EllipticCurvePublicKey) and algorithm is not None:
            key.verify(signature, body, ec.ECDSA(algorithm))
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return True


def comparable(name: x509.Name) -> ComparableName:
    """Return a name for comparison: its text, without encoding, case and repeated blanks (RFC 5280, 7.1)."""

    def fold(value: str | bytes) -> str:
        text = value if isinstance(value, str) else value.hex()
        return " ".join(unicodedata.normalize("NFKC", text).casefold().split())

    return tuple(tuple(sorted((each.oid.dotted_string, fold(each.value)) for each in part)) for part in name.rdns)
