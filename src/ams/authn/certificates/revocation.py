"""Revocation: whether a certificate was revoked before its end, and what is done when that is not known.

For each certificate but the last: lists on disk first, then lists by URL in the certificate's order, and OCSP where
there is neither (contract 15, A10 and A11).
"""

import asyncio
from collections.abc import Collection, Sequence
from itertools import pairwise

import structlog
from cryptography import x509
from cryptography.x509.ocsp import OCSPCertStatus

from ams.authn.certificates.crls import Doubt, FetchedLists, RevocationList, ends_at, unreachable, useless
from ams.authn.certificates.names import comparable
from ams.authn.certificates.ocsp import Responders, no_answer, responder_urls
from ams.authn.certificates.reading import Facts, Refusal
from ams.authn.certificates.trust import Trust
from ams.core.cache import LruCache
from ams.core.clock import Clock
from ams.core.errors import Unavailable

logger = structlog.get_logger("ams.authn.certificates")

REFUSE, WARN = "refuse", "warn"
"""Policies for a certificate whose revocation status is not known."""

SECONDS = 10.0
"""For all fetches of one check; a login has to be answered before its connection is closed (A18)."""
_WARN_EVERY = 3_600_000
"""Milliseconds between two warnings of one list."""
_MOST_WARNINGS = 1000


class Revocation:
    """Says whether the certificates of a chain were withdrawn."""

    def __init__(self, fetched: FetchedLists, asked: Responders | None, policy: str, clock: Clock) -> None:
        self._fetched = fetched
        self._asked = asked
        self._policy = policy
        self._clock = clock
        self._warned: LruCache[str, int] = LruCache(_MOST_WARNINGS)

    async def check(self, chain: Sequence[Facts], trust: Trust) -> int:
        """Return until when the chain is good, in milliseconds since the epoch.

        Raises `Refusal` for one of which a certificate was withdrawn, and `Unavailable` or `Refusal` when that is not
        known and policy is to refuse.
        """
        deadline = asyncio.get_running_loop().time() + SECONDS
        until: int = chain[0].not_after
        for depth, (certificate, issuer) in enumerate(pairwise(chain)):
            try:
                good_until = await self._one(certificate, issuer, trust, depth, deadline)
            except Doubt as doubt:
                self._apply_policy(doubt)
            else:
                until = min(until, good_until)
        return until

    async def _one(self, certificate: Facts, issuer: Facts, trust: Trust, depth: int, deadline: float) -> int:
        urls, has_points = list_urls(certificate)
        best = await self._local(certificate, issuer, trust, urls)
        found_doubts: list[Doubt] = []
        if best is not None:
            try:
                return self._judged(best, certificate, depth)
            except Doubt as doubt:
                found_doubts.append(doubt)
        for url in urls:
            try:
                return await self._by_url(url, certificate, issuer, urls, depth, deadline)
            except Doubt as doubt:
                found_doubts.append(doubt)
        if found_doubts:
            raise found_doubts[0]
        if self._asked is not None and responder_urls(certificate):
            return await self._by_responder(self._asked, certificate, issuer, depth, deadline)
        raise _no_list(certificate, depth, has_points=has_points)

    async def _local(
        self, certificate: Facts, issuer: Facts, trust: Trust, urls: Collection[str]
    ) -> RevocationList | None:
        """Return the newest of the folder's lists that is about a certificate."""
        known = trust.lists.get(comparable(issuer.subject), ())
        for each in sorted(known, key=lambda each: each.this_update, reverse=True):
            if each.is_about(certificate, urls) and await asyncio.to_thread(each.is_signed_by, issuer):
                return each
        return None

    async def _by_url(
        self, url: str, certificate: Facts, issuer: Facts, urls: Collection[str], depth: int, deadline: float
    ) -> int:
        try:
            async with asyncio.timeout_at(deadline):
                found = await self._fetched.get(url, issuer)
        except TimeoutError:
            raise unreachable(url) from None
        if found.list is None:
            raise found.doubt or unreachable(url)
        if not found.list.is_about(certificate, urls):
            raise useless(url, found.list.odd or "it is about other certificates")
        try:
            return self._judged(found.list, certificate, depth)
        except Doubt as doubt:
            raise found.doubt or doubt from None

    def _judged(self, known: RevocationList, certificate: Facts, depth: int) -> int:
        """Raise `Refusal` for what is in a list, be it old, and `Doubt` when an old one does not have it."""
        if known.revokes(certificate.serial):
            raise _revoked(certificate, depth)
        now = self._clock.wall()
        if not known.is_current(now):
            raise Doubt(known.source, Unavailable(f"The CRL {known.source} is out of date"))
        return ends_at(known, now)

    async def _by_responder(
        self, asked: Responders, certificate: Facts, issuer: Facts, depth: int, deadline: float
    ) -> int:
        try:
            async with asyncio.timeout_at(deadline):
                answer = await asked.ask(certificate, issuer)
        except TimeoutError:
            raise no_answer(responder_urls(certificate)[0]) from None
        if answer.status is OCSPCertStatus.REVOKED:
            raise _revoked(certificate, depth)
        if answer.status is OCSPCertStatus.UNKNOWN:
            raise Refusal("unknown", "Your certificate is not known to the OCSP responder of its CA")
        return answer.until

    def _apply_policy(self, doubt: Doubt) -> None:
        """Raise when policy is to refuse; else accept and log a warning, once an hour for each list."""
        if self._policy != WARN:
            raise doubt.error
        now = self._clock.monotonic()
        warned_at = self._warned.get(doubt.source)
        if warned_at is not None and now - warned_at < _WARN_EVERY:
            return
        self._warned.put(doubt.source, now)
        logger.warning("revocation.unknown", source=doubt.source, reason=str(doubt))


def list_urls(certificate: Facts) -> tuple[list[str], bool]:
    """Return the http and https URLs of a certificate's lists, and whether it has points of any kind.

    Points of lists that another signs, or that know some reasons only, are left out.
    """
    points = certificate.extension(x509.CRLDistributionPoints)
    if points is None:
        return [], False
    names = [
        str(name.value)
        for point in points
        if point.crl_issuer is None and point.reasons is None
        for name in point.full_name or ()
        if isinstance(name, x509.UniformResourceIdentifier)
    ]
    usable = [name for name in names if name.lower().startswith(("http://", "https://"))]
    return list(dict.fromkeys(usable)), True


def _no_list(certificate: Facts, depth: int, *, has_points: bool) -> Doubt:
    """A certificate whose CA names no list and no responder that could be asked (contract 9.3)."""
    subject = certificate.subject.rfc4514_string()
    why = "No CRLDistributionPoints found on the certificate"
    if depth:
        why = f"No CRL is known for its CA {subject}"
    elif has_points:
        why = "None of its CRLDistributionPoints can be fetched by http or https"
    return Doubt(subject, Refusal("no_list", f"Your certificate is invalid. {why}"))


def _revoked(certificate: Facts, depth: int) -> Refusal:
    text = "Your certificate has been revoked"
    if depth:
        text = f"Your certificate is of a CA whose own has been revoked: {certificate.subject.rfc4514_string()}"
    return Refusal("revoked", text)
