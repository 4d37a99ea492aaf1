"""Subjects: what a login needs of a client's certificate, read once for all its logins."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ams.authn.certificates.subject import subject_sha256, unrepresentable
from ams.core.distinguished_names import of_certificate
from ams.core.errors import CertificateRefused

REMEMBERED = 10_000
"""Most certificates of which anything is remembered; those that were not used for longest are forgotten first."""
LONGEST = 2_000
"""Characters of subject and issuer together that are remembered: anybody may show names of 100 kB, believed or not."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a certificate names, and who says so."""

    name: str
    """In normal form."""
    sha256: str
    """Hex, of all of it (DER), as the normal form may leave parts out (15, A8)."""
    lost: str | None
    """What the normal form cannot say of it; None: nothing."""
    issuer: str
    """In normal form."""


class Subjects:
    """Reads subjects, and remembers those of certificates that came lately."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Subject] = OrderedDict()

    def of(self, leaf: x509.Certificate) -> tuple[bytes, Subject]:
        """Return the fingerprint of a certificate, and its subject; raise `CertificateRefused`."""
        fingerprint = hashlib.sha256(leaf.public_bytes(Encoding.DER)).digest()
        known = self._known.get(fingerprint)
        if known is None:
            known = _read(leaf)
            self._remember(fingerprint, known)
        else:
            self._known.move_to_end(fingerprint)
        return fingerprint, known

    def _remember(self, fingerprint: bytes, subject: Subject) -> None:
        if len(subject.name) + len(subject.issuer) > LONGEST:
            return
        self._known[fingerprint] = subject
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _read(leaf: x509.Certificate) -> Subject:
    try:
        subject = leaf.subject
        return Subject(
            name=of_certificate(subject),
            sha256=subject_sha256(subject),
            lost=unrepresentable(subject),
            issuer=of_certificate(leaf.issuer),
        )
    except (ValueError, TypeError):  # values that are no text of the encoding they claim
        raise CertificateRefused("Your certificate has a subject that cannot be read") from None
