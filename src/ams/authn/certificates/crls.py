"""Certificate revocation lists (CRLs): parsed, verified, and fetched by URL (contract 9.2; 15, A10).

A list is parsed once, indexed, and used only within its scope. A fetched list is verified, cached until it expires, and
refreshed before that. Only lists signed by the certificate's own CA are cached, so a forged answer replaces no good
one; nor does an older list, which an attacker could replay. Good lists are also stored as files, so that a start needs
no fetch.

If the revocation status is unknown, the policy (`revocation`) decides. Texts of doubts get the contract's `Internal
Error: ` where errors are written (`ams.authn.http.errors`).
"""

import asyncio
import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Self

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from ams.authn.certificates.certificate import (
    ComparableName,
    Facts,
    comparable,
    has_signed,
    ignore_warnings,
    issuer_of,
    milliseconds,
)
from ams.authn.certificates.der import find_original, load_mended, parse_mended, to_der
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AmsError, Unavailable
from ams.core.urls import without_credentials
from ams.outgoing.client import AnswerTooLong, HttpClient, RequestFailed
from ams.storage.document_cache import DocumentCache, Edition
from ams.storage.free_space import UNLIMITED, FreeSpace

logger = structlog.get_logger("ams.authn.certificates")

CLOCK_SKEW_MS = 5 * 60_000  # milliseconds that the clock of a CA may be ahead
HOUR_MS = 3_600_000
REFRESH_MS = 6 * HOUR_MS  # milliseconds until a list is fetched again in any case; as often as fetch-crl
RETRY_MS = 5 * 60_000
DEFAULT_LIFETIME_MS = HOUR_MS  # milliseconds that a list without an expiry is valid
UNUSED_TTL_MS = 24 * HOUR_MS  # milliseconds until an unused list is dropped
MAX_CACHED_BYTES = 64 * 1024 * 1024  # of all lists as published; the least recently used goes first, one stays
MAX_CACHED_LISTS = 1000
MAX_REDIRECTS = 3  # redirects of one fetch. CAs move their lists, mostly to `https`; the signature proves a list
_KNOWN_EXTENSIONS = (x509.IssuingDistributionPoint, x509.CRLNumber, x509.AuthorityKeyIdentifier)

_SCOPE_FAULTS = {  # fields of a list's scope that make it unusable here
    "indirect_crl": "it is about certificates of others",
    "only_contains_attribute_certs": "it is about attribute certificates",
    "only_some_reasons": "it is about some reasons only",
    "relative_name": "it is for a place that is not named in full",
}

Key = tuple[str, bytes]  # URL, and fingerprint of the CA
ListPlace = tuple[str, Facts]  # URL, and the CA


class Doubt(Exception):
    """The revocation status of a certificate is unknown; `error` is raised if the policy refuses it."""

    def __init__(self, source: str, error: AmsError) -> None:
        super().__init__(error.message)
        self.source, self.error = source, error

    @classmethod
    def unreachable(cls, url: str, what: str = "CRL") -> Self:
        """Return the doubt about a list that cannot be fetched, or a responder that does not answer (contract 9.3)."""
        url = without_credentials(url)
        return cls(url, Unavailable(f"Could not access {what} {url}"))

    @classmethod
    def wrong_scope(cls, source: str, why: str) -> Self:
        """Return the doubt about a list of the right CA that does not cover this certificate."""
        return cls(source, Unavailable(f"The CRL {source} is of no use: {why}"))


@dataclass(frozen=True, slots=True, eq=False)
class RevocationList:
    """A published list, unverified before `is_signed_by`. `odd`: why it is never used."""

    source: str
    issuer: ComparableName
    this_update: Milliseconds
    next_update: Milliseconds | None
    odd: str
    _crl: x509.CertificateRevocationList
    _serials: frozenset[int]
    _scope: x509.IssuingDistributionPoint | None
    _signed: bytes = b""  # the signed part, if it differs from the bytes of `_crl`
    _signers: dict[bytes, bool] = field(default_factory=dict)  # by fingerprint of a CA: True if it has signed the list

    @classmethod
    def read(cls, data: bytes, source: str) -> "RevocationList":
        """Parse a list, PEM or DER. Raises `ValueError`."""
        try:
            der = to_der(data, b"X509 CRL")
            crl, text = parse_mended(x509.load_der_x509_crl, der)
            try:
                with ignore_warnings():  # not `load_mended`: a long list is slow, and other requests wait
                    extensions = crl.extensions
            except ValueError:
                legible = load_mended(crl, x509.load_der_x509_crl)
                with ignore_warnings():
                    extensions = legible.extensions
            with ignore_warnings():
                issuer, since, until = comparable(issuer_of(crl)), crl.last_update_utc, crl.next_update_utc
            values = (each.value for each in extensions)
            scope = next((each for each in values if isinstance(each, x509.IssuingDistributionPoint)), None)
            serials = frozenset(each.serial_number for each in crl)
            signed = b"" if text is der else find_original(crl.tbs_certlist_bytes, text, der)
        except Exception as error:  # parsers raise many kinds of errors
            raise ValueError(str(error)) from error
        end, odd = None if until is None else milliseconds(until), _unusable_reason(extensions, scope)
        return cls(source, issuer, milliseconds(since), end, odd, crl, serials, scope, signed)

    def is_signed_by(self, issuer: Facts) -> bool:
        """Return whether a CA has signed the list, and may sign lists. The first call is slow for a long list."""
        if issuer.fingerprint not in self._signers:
            usage = issuer.extension(x509.KeyUsage)
            may_sign = self.issuer == comparable(issuer.subject) and (usage is None or usage.crl_sign)
            self._signers[issuer.fingerprint] = may_sign and self._verify(issuer.certificate)
        return self._signers[issuer.fingerprint]

    def is_about(self, certificate: Facts, urls: Collection[str]) -> bool:
        """Return whether the list covers a certificate of its CA, whose lists are at `urls`."""
        if self.odd:
            return False
        if self._scope is None:
            return True
        is_of_others = self._scope.only_contains_user_certs if certificate.is_ca else self._scope.only_contains_ca_certs
        names = self._scope.full_name
        return not is_of_others and (names is None or any(each.value in urls for each in names))

    def is_current(self, now: Milliseconds) -> bool:
        """Return whether the list is valid now."""
        return not self.is_ahead(now) and (self.next_update is None or now < self.next_update)

    def is_ahead(self, now: Milliseconds) -> bool:
        """Return whether its start is in the future."""
        return self.this_update > now + CLOCK_SKEW_MS

    def revokes(self, serial: int) -> bool:
        """Return whether a certificate with this serial number is revoked."""
        if serial not in self._serials:
            return False
        if (entry := self._crl.get_revoked_certificate_by_serial_number(serial)) is None:
            return True
        try:
            reason = entry.extensions.get_extension_for_class(x509.CRLReason).value.reason
        except Exception:  # no reason, or an unreadable one
            return True
        return reason is not x509.ReasonFlags.remove_from_crl

    def ends_at(self, now: Milliseconds) -> Milliseconds:
        """Return when a current list expires."""
        return self.next_update if self.next_update is not None else Milliseconds(now + DEFAULT_LIFETIME_MS)

    def _verify(self, ca: x509.Certificate) -> bool:
        if self._signed:
            return has_signed(ca, self._crl.signature, self._signed, self._crl.signature_hash_algorithm)
        try:
            return self._crl.is_signature_valid(ca.public_key())  # type: ignore[arg-type]
        except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
            return False


def _unusable_reason(extensions: x509.Extensions, scope: x509.IssuingDistributionPoint | None) -> str:
    if any(isinstance(each.value, x509.DeltaCRLIndicator) for each in extensions):
        return "it says what changed only"
    if any(each.critical and not isinstance(each.value, _KNOWN_EXTENSIONS) for each in extensions):
        return "it has a critical extension that is not understood here"
    return next((reason for name, reason in _SCOPE_FAULTS.items() if getattr(scope, name, None)), "")


class CrlCache(DocumentCache[Key, ListPlace, RevocationList]):
    """CRL cache by URL and CA. The newest list that the CA has signed stays, even when expired."""

    max_documents = MAX_CACHED_LISTS
    max_bytes = MAX_CACHED_BYTES
    refresh_retry_ms = RETRY_MS
    expected_error = Doubt
    unused_ms = UNUSED_TTL_MS
    is_file_first = True
    upkeep_event = "crl.upkeep_failed"

    def __init__(self, client: HttpClient, clock: Clock, folder: str = "", space: FreeSpace = UNLIMITED) -> None:
        """`folder` stores lists across restarts; empty: not stored."""
        super().__init__(clock.wall, folder, space, clock.monotonic)
        self.logger, self._client = logger, client

    def lists(self) -> Iterator[RevocationList]:
        """Yield the cached lists."""
        return (each.document for each in self.states.values() if each.document is not None)

    def _key_of(self, place: ListPlace) -> Key:
        url, issuer = place
        return url, issuer.fingerprint

    async def _fetch(self, place: ListPlace, before: RevocationList | None) -> Edition[RevocationList]:
        url, _ = place
        try:
            data = await self._client.get(url, redirects=MAX_REDIRECTS)
            fresh = await asyncio.to_thread(_verify, data, *place)
            if fresh.is_ahead(self._now()):  # stored, it would block all newer lists until then
                raise Doubt.wrong_scope(url, "it is of the future")
        except AnswerTooLong as error:
            raise Doubt(without_credentials(url), Unavailable("Unable to read CRL Data")) from error
        except RequestFailed as error:
            logger.warning("crl.not_fetched", url=without_credentials(url), reason=str(error))
            raise Doubt.unreachable(url) from error
        except Doubt as doubt:
            logger.warning("crl.not_believed", url=without_credentials(url), reason=str(doubt))
            raise
        if before is not None and before.this_update >= fresh.this_update:
            return self._edition(before, b"")
        return self._edition(fresh, data)

    def _file_name(self, key: Key) -> str:
        return hashlib.sha256(key[0].encode() + b"\0" + key[1]).hexdigest() + ".crl"

    def _read(self, place: ListPlace, data: bytes) -> Edition[RevocationList]:
        return self._edition(_verify(data, *place), data)

    def _log_file_error(self, key: Key, reason: str, *, is_read: bool) -> None:
        event = "crl.kept_list_unreadable" if is_read else "crl.not_kept"
        logger.warning(event, url=without_credentials(key[0]), reason=reason)

    def _good_until(self, found: RevocationList, _: int) -> int:
        now = self._now()
        return found.ends_at(now) if found.is_current(now) else now

    def _edition(self, found: RevocationList, data: bytes) -> Edition[RevocationList]:
        now = self._now()
        if not found.is_current(now):
            return Edition(found, now + RETRY_MS, now, data)
        # Before the expiry, so that one failure does no harm.
        left = found.ends_at(now) - now
        refresh_at = now + min(REFRESH_MS, left - max(left // 10, min(RETRY_MS, left // 2)))
        return Edition(found, refresh_at, now + left, data)


def _verify(data: bytes, url: str, issuer: Facts) -> RevocationList:
    try:
        found = RevocationList.read(data, url)
    except ValueError as error:
        raise Doubt(url, Unavailable("Unable to parse CRL Data")) from error
    if not found.is_signed_by(issuer):
        raise Doubt(url, Unavailable(f"The CRL {url} is not signed by the CA of the certificate"))
    return found
