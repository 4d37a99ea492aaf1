"""Lists of withdrawn certificates (CRLs): read once, indexed, and believed only for what they are for."""

from collections.abc import Collection
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes

from ams.authn.certificates.reading import Facts, milliseconds, quietly
from ams.core.clock import Milliseconds

EARLY = 5 * 60_000
"""Milliseconds that another's clock may be ahead."""
_UNDERSTOOD = (x509.IssuingDistributionPoint, x509.CRLNumber, x509.AuthorityKeyIdentifier)


class UnreadableList(Exception):
    """This is no list of withdrawn certificates."""


@dataclass(frozen=True, slots=True, eq=False)
class RevocationList:
    """A list as somebody published it; who signed it is not known before `is_signed_by`."""

    source: str
    """Path or URL."""
    issuer: bytes
    """The name it is published in, encoded."""
    this_update: Milliseconds
    next_update: Milliseconds | None
    size: int
    """Bytes."""
    odd: str
    """Why it is never believed; empty: it may be."""
    _crl: x509.CertificateRevocationList
    _serials: frozenset[int]
    _scope: x509.IssuingDistributionPoint | None
    _signers: dict[bytes, bool] = field(default_factory=dict)
    """Whether it is theirs, by fingerprint."""

    @classmethod
    def read(cls, data: bytes, source: str) -> "RevocationList":
        """Read a list, PEM or DER; raise `UnreadableList`."""
        try:
            is_pem = data.lstrip().startswith(b"-----")
            crl = x509.load_pem_x509_crl(data) if is_pem else x509.load_der_x509_crl(data)
            with quietly():  # not the whole: a long list takes a while, and others wait
                scope = next(
                    (e.value for e in crl.extensions if isinstance(e.value, x509.IssuingDistributionPoint)), None
                )
                issuer, odd = crl.issuer.public_bytes(), _odd(crl.extensions, scope)
                since, until = crl.last_update_utc, crl.next_update_utc
            serials = frozenset(each.serial_number for each in crl)
        except Exception as error:  # a parser's, of many kinds
            raise UnreadableList(str(error)) from error
        return cls(
            source,
            issuer,
            milliseconds(since),
            None if until is None else milliseconds(until),
            len(data),
            odd,
            crl,
            serials,
            scope,
        )

    def __len__(self) -> int:
        return len(self._serials)

    def is_signed_by(self, issuer: Facts) -> bool:
        """Whether a CA has signed it, and may; costs much the first time for a long list."""
        fingerprint = issuer.certificate.fingerprint(hashes.SHA256())
        if fingerprint not in self._signers:
            self._signers[fingerprint] = self._verified(issuer)
        return self._signers[fingerprint]

    def is_about(self, certificate: Facts, urls: Collection[str]) -> bool:
        """Whether it would name a certificate of its CA, which has its lists at `urls`, if it were withdrawn."""
        if self.odd:
            return False
        if self._scope is None:
            return True
        if self._scope.only_contains_user_certs and certificate.is_ca:
            return False
        if self._scope.only_contains_ca_certs and not certificate.is_ca:
            return False
        names = self._scope.full_name
        return names is None or any(each.value in urls for each in names)

    def is_current(self, now: Milliseconds) -> bool:
        """Whether it says what is so now."""
        return not self.is_ahead(now) and (self.next_update is None or now < self.next_update)

    def is_ahead(self, now: Milliseconds) -> bool:
        """Whether it is of the future."""
        return self.this_update > now + EARLY

    def revokes(self, serial: int) -> bool:
        """Whether a certificate with this serial number is withdrawn."""
        if serial not in self._serials:
            return False
        entry = self._crl.get_revoked_certificate_by_serial_number(serial)
        return entry is None or not _is_taken_back(entry)

    def _verified(self, issuer: Facts) -> bool:
        if self.issuer != issuer.subject.public_bytes():
            return False
        usage = issuer.extension(x509.KeyUsage)
        if usage is not None and not usage.crl_sign:
            return False
        try:
            return self._crl.is_signature_valid(issuer.certificate.public_key())  # type: ignore[arg-type]
        except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
            return False


def _odd(extensions: x509.Extensions, scope: x509.IssuingDistributionPoint | None) -> str:
    """Return why a list is not believed for any certificate (RFC 5280, 5.2)."""
    if any(isinstance(each.value, x509.DeltaCRLIndicator) for each in extensions):
        return "it says what changed only"
    if any(each.critical and not isinstance(each.value, _UNDERSTOOD) for each in extensions):
        return "it has a critical extension that is not understood here"
    if scope is None:
        return ""
    if scope.indirect_crl:
        return "it is about certificates of others"
    if scope.only_contains_attribute_certs:
        return "it is about attribute certificates"
    if scope.only_some_reasons:
        return "it is about some reasons only"
    if scope.relative_name is not None:
        return "it is for a place that is not named in full"
    return ""


def _is_taken_back(entry: x509.RevokedCertificate) -> bool:
    try:
        reason = entry.extensions.get_extension_for_class(x509.CRLReason).value.reason
    except Exception:  # no reason, or one that cannot be read
        return False
    return reason is x509.ReasonFlags.remove_from_crl
