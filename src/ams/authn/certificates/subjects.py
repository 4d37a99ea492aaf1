"""Subjects: what a login needs of a client's certificate, read once for all its logins (contract 15, A8).

The normal form of a subject leaves out and mixes up, so that two subjects may have one. Those that could are found
here: a binding to one of them knows the digest of the whole subject too.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ams.authn.certificates.names import issuer_of, subject_of
from ams.authn.certificates.reading import quietly
from ams.core.cache import LruCache
from ams.core.distinguished_names import of_certificate
from ams.core.errors import CertificateRefused

REMEMBERED = 10_000
"""Most certificates of which anything is remembered; those that were not used for longest are forgotten first."""
LONGEST = 2_000
"""Characters of subject and issuer together that are remembered: clients may show names of 100 kB, believed or not."""

_AMBIGUOUS = frozenset(',+"\\<>;')
"""What the normal form escapes elsewhere, but not in `E` and `DC`."""
_UNESCAPED = {"1.2.840.113549.1.9.1": "E", "0.9.2342.19200300.100.1.25": "DC"}
_SINGLE = {"2.5.4.3": "CN", "2.5.4.5": "SERIALNUMBER"}
"""Of several, the normal form keeps the last."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a certificate, and its issuer."""

    name: str
    """In normal form."""
    sha256: str
    """Hex, of all of it (DER), as the normal form may leave parts out (15, A8)."""
    lost: str | None
    """What the normal form loses of it; None: nothing."""
    issuer: str
    """In normal form."""


class Subjects:
    """Reads subjects, and remembers those of certificates that came lately."""

    def __init__(self) -> None:
        self._known: LruCache[bytes, Subject] = LruCache(REMEMBERED)

    def of(self, leaf: x509.Certificate) -> tuple[bytes, Subject]:
        """Return the fingerprint of a certificate, and its subject; raise `CertificateRefused`."""
        fingerprint = hashlib.sha256(leaf.public_bytes(Encoding.DER)).digest()
        known = self._known.get(fingerprint)
        if known is None:
            known = _read(leaf)
            if len(known.name) + len(known.issuer) <= LONGEST:
                self._known.put(fingerprint, known)
        return fingerprint, known


def _read(leaf: x509.Certificate) -> Subject:
    try:
        with quietly():
            subject, issuer = subject_of(leaf), issuer_of(leaf)
            return Subject(
                name=of_certificate(subject),
                sha256=subject_sha256(subject),
                lost=unrepresentable(subject),
                issuer=of_certificate(issuer),
            )
    except (ValueError, TypeError):  # values that are no text of the encoding they claim
        raise CertificateRefused("Your certificate has a subject that cannot be read") from None


def unrepresentable(name: x509.Name) -> str | None:
    """Return why the normal form of a subject does not stand for it alone; None: it does."""
    attributes = list(name)
    if not attributes:
        return "it is empty"
    for oid, count in Counter(each.oid.dotted_string for each in attributes).items():
        if oid in _SINGLE and count > 1:
            return f"it has several {_SINGLE[oid]}"
    return next((reason for each in attributes if (reason := _lost(each))), None)


def subject_sha256(name: x509.Name) -> str:
    """Return the SHA-256 of a whole subject (DER), in hexadecimal digits."""
    return hashlib.sha256(name.public_bytes()).hexdigest()


def _lost(attribute: x509.NameAttribute[str | bytes]) -> str:
    """Return what the normal form does not keep of an attribute; empty: nothing."""
    oid, value = attribute.oid.dotted_string, attribute.value
    if not isinstance(value, str) or not of_certificate(x509.Name([attribute])):
        return f"its {attribute.rfc4514_attribute_name} is not in the normal form"
    label = _UNESCAPED.get(oid)
    if label and (_AMBIGUOUS.intersection(value) or value != value.strip() or value.startswith("#")):
        return f"its {label} has characters that are not escaped in the normal form"
    return ""
