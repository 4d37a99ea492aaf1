"""Revocation: checks if a certificate was revoked, and applies a policy if that is unknown.

For each certificate except the last: first lists on disk, then lists by URL in the certificate's order. If it has
neither, OCSP asks its CA about one certificate (contract 15, A10 and A11; RFC 6960).
"""

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID

from ams.authn.certificates.certificate import CertificateRefusal, Facts, comparable, has_signed, milliseconds, read_der
from ams.authn.certificates.crls import CLOCK_SKEW_MS, CrlCache, Doubt, RevocationList
from ams.authn.certificates.der import ISSUER, find_original, parse_mended, read_field, read_signed_body
from ams.authn.certificates.trust import TrustStore, is_issued_by
from ams.core.cache import ExpiringCache
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import Unavailable
from ams.core.urls import without_credentials
from ams.outgoing.client import HttpClient, RequestFailed
from ams.storage.document_cache import DocumentCache, Edition

logger = structlog.get_logger("ams.authn.certificates")

MAX_ANSWER_BYTES = 64 * 1024  # of an OCSP answer, parsed before its signature is checked
CHECK_SECONDS = 10.0  # for all fetches of one check: a login must be answered before its connection closes (A18)
MAX_CACHED_ANSWERS = 10_000  # OCSP answers that are cached
DEFAULT_LIFETIME_MS = 5 * 60_000  # milliseconds that an OCSP answer without an expiry is valid
MEDIA_TYPE = "application/ocsp-request"
_MAX_AGE_MS = 24 * 3_600_000  # greatest age of such an answer, in milliseconds
_WARNING_INTERVAL_MS = 3_600_000  # milliseconds between two warnings about one list
_MAX_WARNINGS = 1000


class _Link(NamedTuple):
    """A certificate of a chain; `depth` 0 is the client's own. `deadline` is on the event loop's clock."""

    certificate: Facts
    issuer: Facts
    depth: int
    deadline: float


class Revocation:
    """Checks the certificates of a chain for revocation."""

    def __init__(self, fetched: CrlCache, asked: "Responders | None", policy: str, clock: Clock) -> None:
        """`policy` for an unknown status: `refuse` or `warn`."""
        self._fetched, self._asked, self._policy, self._clock = fetched, asked, policy, clock
        self._warned: ExpiringCache[str, bool] = ExpiringCache(_MAX_WARNINGS, _WARNING_INTERVAL_MS, clock.monotonic)

    async def check(self, chain: Sequence[Facts], trust: TrustStore) -> int:
        """Return until when the chain is good (wall clock). Raises `CertificateRefusal`, or `Unavailable` in doubt."""
        deadline = asyncio.get_running_loop().time() + CHECK_SECONDS
        until: int = chain[0].not_after
        for depth, (certificate, issuer) in enumerate(itertools.pairwise(chain)):
            try:
                until = min(until, await self._check_certificate(_Link(certificate, issuer, depth, deadline), trust))
            except Doubt as doubt:
                if self._policy != "warn":
                    raise doubt.error.with_traceback(None) from None  # raised for each login, its traceback would grow
                if self._warned.get(doubt.source) is None:  # once an hour for each list
                    self._warned.put(doubt.source, True)
                    logger.warning("revocation.unknown", source=doubt.source, reason=str(doubt))
        return until

    async def _check_certificate(self, link: _Link, trust: TrustStore) -> int:
        urls = _list_urls(link.certificate)
        found_doubts: list[Doubt] = []
        known = trust.lists.get(comparable(link.issuer.subject), ())
        for each in sorted(known, key=lambda each: each.this_update, reverse=True):
            if each.is_about(link.certificate, urls) and await asyncio.to_thread(each.is_signed_by, link.issuer):
                try:
                    return self._check_list(each, link)
                except Doubt as doubt:
                    found_doubts.append(doubt)
                break
        for url in urls:
            try:
                return await self._by_url(url, link, urls)
            except Doubt as doubt:
                found_doubts.append(doubt)
        if found_doubts:
            raise found_doubts[0]
        if self._asked is not None and _responder_urls(link.certificate):
            return await self._by_responder(self._asked, link)
        raise _no_list(link)

    async def _by_url(self, url: str, link: _Link, urls: Collection[str]) -> int:
        try:
            async with asyncio.timeout_at(link.deadline):
                state = await self._fetched.get((url, link.issuer))
        except TimeoutError:
            raise Doubt.unreachable(url) from None
        if state.document is None:
            raise state.failure or Doubt.unreachable(url)
        if not state.document.is_about(link.certificate, urls):
            raise Doubt.wrong_scope(url, state.document.odd or "it is about other certificates")
        try:
            return self._check_list(state.document, link)
        except Doubt as doubt:
            raise state.failure or doubt from None

    def _check_list(self, known: RevocationList, link: _Link) -> int:
        """Raise `CertificateRefusal` if a list has the certificate, `Doubt` if an expired list does not have it."""
        if known.revokes(link.certificate.serial):
            raise _revoked_refusal(link)
        now = self._clock.wall()
        if not known.is_current(now):
            raise Doubt(known.source, Unavailable(f"The CRL {known.source} is out of date"))
        return known.ends_at(now)

    async def _by_responder(self, asked: "Responders", link: _Link) -> int:
        try:
            async with asyncio.timeout_at(link.deadline):
                answer = await asked.document((link.certificate, link.issuer))
        except TimeoutError:
            raise Doubt.unreachable(_responder_urls(link.certificate)[0], "OCSP responder") from None
        if answer.status is ocsp.OCSPCertStatus.REVOKED:
            raise _revoked_refusal(link)
        if answer.status is ocsp.OCSPCertStatus.UNKNOWN:
            raise CertificateRefusal("unknown", "Your certificate is not known to the OCSP responder of its CA")
        return answer.until


def _http_urls(names: Iterable[x509.GeneralName]) -> list[str]:
    urls = [str(each.value) for each in names if isinstance(each, x509.UniformResourceIdentifier)]
    return [each for each in urls if each.lower().startswith(("http://", "https://"))]


def _list_urls(certificate: Facts) -> list[str]:
    points = certificate.extension(x509.CRLDistributionPoints) or ()
    whole = (each for each in points if each.crl_issuer is None and each.reasons is None)
    return list(dict.fromkeys(_http_urls(name for each in whole for name in each.full_name or ())))


def _responder_urls(certificate: Facts) -> list[str]:
    ways = certificate.extension(x509.AuthorityInformationAccess) or ()
    kind = AuthorityInformationAccessOID.OCSP
    return _http_urls(each.access_location for each in ways if each.access_method == kind)


def _no_list(link: _Link) -> Doubt:
    subject = link.certificate.subject.rfc4514_string()
    why = "No CRLDistributionPoints found on the certificate"
    if link.depth:
        why = f"No CRL is known for its CA {subject}"
    elif link.certificate.extension(x509.CRLDistributionPoints) is not None:
        why = "None of its CRLDistributionPoints can be fetched by http or https"
    return Doubt(subject, CertificateRefusal("no_list", f"Your certificate is invalid. {why}"))


def _revoked_refusal(link: _Link) -> CertificateRefusal:
    text = "Your certificate has been revoked"
    if link.depth:
        text = f"Your certificate is of a CA whose own has been revoked: {link.certificate.subject.rfc4514_string()}"
    return CertificateRefusal("revoked", text)


class _OcspAnswer(NamedTuple):
    status: ocsp.OCSPCertStatus
    until: int


class _UnusableAnswer(Exception):
    """An answer that cannot be used; the text has the reason, for the log."""


class Responders(DocumentCache[tuple[bytes, int], tuple[Facts, Facts], _OcspAnswer]):
    """Cached answers of OCSP responders, by certificate and its CA."""

    max_documents = MAX_CACHED_ANSWERS

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        super().__init__(clock.wall)
        self._client = client

    def _key_of(self, source: tuple[Facts, Facts]) -> tuple[bytes, int]:
        certificate, issuer = source
        return issuer.fingerprint, certificate.serial

    async def _fetch(self, source: tuple[Facts, Facts], before: _OcspAnswer | None) -> Edition[_OcspAnswer]:
        certificate, issuer = source
        urls = _responder_urls(certificate)
        # SHA-1 only identifies the CA, and proves nothing; many responders know no other.
        algorithm, builder = hashes.SHA1(), ocsp.OCSPRequestBuilder()  # noqa: S303
        key = builder.add_certificate(certificate.certificate, issuer.certificate, algorithm).build().issuer_key_hash
        name = hashlib.sha1(read_field(read_signed_body(certificate.der), ISSUER), usedforsecurity=False).digest()
        asked = builder.add_certificate_by_hash(name, key, certificate.serial, algorithm).build()
        body = asked.public_bytes(Encoding.DER)
        for url in urls:
            try:
                data = await self._client.post(url, body, MEDIA_TYPE)
                answer = await asyncio.to_thread(_read_answer, data, asked, issuer, self._now())
                return Edition(answer, answer.until, answer.until)
            except (RequestFailed, _UnusableAnswer) as error:
                logger.warning("ocsp.no_answer", url=without_credentials(url), reason=str(error))
        raise Doubt.unreachable(urls[0], "OCSP responder")


def _read_answer(data: bytes, asked: ocsp.OCSPRequest, issuer: Facts, now: Milliseconds) -> _OcspAnswer:
    if len(data) > MAX_ANSWER_BYTES:
        raise _UnusableAnswer("it is too long")
    try:
        response, text = parse_mended(ocsp.load_der_ocsp_response, data)
        if response.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            raise _UnusableAnswer(f"it says {response.response_status.name}")
        body = find_original(response.tbs_response_bytes, text, data)
        signature, algorithm = response.signature, response.signature_hash_algorithm
        shown = [find_original(each.public_bytes(Encoding.DER), text, data) for each in response.certificates]
        signers = itertools.chain([issuer], _find_delegates(shown, issuer, now))
        if not any(has_signed(each.certificate, signature, body, algorithm) for each in signers):
            raise _UnusableAnswer("it is not signed by the CA, nor by one that may answer for it")
        for each in response.responses:
            if (
                each.serial_number == asked.serial_number
                and each.hash_algorithm.name == asked.hash_algorithm.name
                and each.issuer_key_hash == asked.issuer_key_hash
                and each.issuer_name_hash == asked.issuer_name_hash
            ):
                return _OcspAnswer(each.certificate_status, _answer_expiry(each, now))
        raise _UnusableAnswer("it is about another certificate")
    except _UnusableAnswer:
        raise
    except Exception as error:  # parsers raise many kinds of errors
        raise _UnusableAnswer(f"it cannot be read: {error}") from error


def _answer_expiry(single: ocsp.OCSPSingleResponse, now: int) -> int:
    since, end = milliseconds(single.this_update_utc), single.next_update_utc
    if since > now + CLOCK_SKEW_MS:
        raise _UnusableAnswer("it is of the future")
    until = now + DEFAULT_LIFETIME_MS if end is None else milliseconds(end)
    if until <= now or (end is None and since < now - _MAX_AGE_MS):
        raise _UnusableAnswer("it is out of date")
    return until


def _find_delegates(shown: Sequence[bytes], issuer: Facts, now: Milliseconds) -> Iterator[Facts]:
    """Yield the certificates of responders to which a CA delegates its OCSP answers (RFC 6960, 4.2.2.2)."""
    for each in shown:
        with contextlib.suppress(CertificateRefusal):  # an unreadable one
            certificate = read_der(each)
            usage = certificate.extension(x509.ExtendedKeyUsage)
            is_for_ocsp = usage is not None and ExtendedKeyUsageOID.OCSP_SIGNING in usage
            if is_for_ocsp and is_issued_by(certificate, issuer, now):
                yield certificate
