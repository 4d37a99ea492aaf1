"""Checks: whether a certificate is to be believed now; all of contract 9, with what section 15 wants instead.

The order is: what can be read, dates, proxy certificates, chain, usage, host, revocation. What passed is remembered for
a minute, so that a client who logs in again costs a look into a table.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import structlog
from cryptography.hazmat.primitives import hashes

from ams.authn.certificates.chain import check_dates, check_no_proxy, check_strength, check_usage, verified_chain
from ams.authn.certificates.crls import FetchedLists, RevocationList
from ams.authn.certificates.hosts import HostCheck
from ams.authn.certificates.ocsp import Responders
from ams.authn.certificates.reading import KINDS, Facts, Refusal, read_leaf
from ams.authn.certificates.revocation import Revocation
from ams.authn.certificates.trust import Trust, TrustFolder
from ams.authn.settings import AuthnSettings
from ams.authn.values import UNREADABLE, Presented
from ams.core.cache import LruCache
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AmsError, CertificateRefused, Unavailable
from ams.core.observing import Figure, figure
from ams.outgoing.client import HttpClient
from ams.outgoing.guard import Guard

logger = structlog.get_logger("ams.authn.certificates")

REMEMBER = 60_000
"""Most milliseconds for which a certificate is accepted without a new check."""
REMEMBERED = 10_000
"""Certificates."""


@dataclass(frozen=True, slots=True)
class _Passed:
    since: int
    """Before that it is not good either: the machine's time may be put back."""
    until: int
    state: tuple[int, int]


class CertificateChecks:
    """Decides whether certificates are valid now. `close` it."""

    def __init__(
        self,
        settings: AuthnSettings,
        guard: Guard,
        clock: Clock,
        crl_folder: str = "",
        *,
        hosts: HostCheck | None = None,
    ) -> None:
        """`crl_folder` is where fetched lists are kept over a restart; empty: nowhere."""
        self._settings = settings
        self._clock = clock
        self._folder = TrustFolder(settings.client_ca, clock)
        self._client = HttpClient(guard)
        self._fetched = FetchedLists(self._client, clock, crl_folder)
        self._responders = Responders(self._client, clock)
        asked = self._responders if settings.ocsp else None
        self._revocation = Revocation(self._fetched, asked, settings.revocation, clock)
        self._hosts = hosts or HostCheck()
        self._passed: LruCache[bytes, _Passed] = LruCache(REMEMBERED)
        self._refused: Counter[str] = Counter()
        self.remembered = 0
        """Checks that were answered from memory."""

    async def check(self, presented: Presented, address: str, *, verify_host: bool) -> None:
        """Return for a certificate that is to be believed.

        Raises `CertificateRefused` for one that is not, and `Unavailable` when its CA's lists cannot be had (contract
        9.3); nothing else, whatever a client sends.
        """
        try:
            await self._check(presented, address if verify_host else "")
        except CertificateRefused as error:
            self._refused[error.kind if isinstance(error, Refusal) else "chain"] += 1
            raise
        except Unavailable:
            self._refused["doubt"] += 1
            raise
        except AmsError:
            raise
        except Exception as error:  # a certificate that the parsers do not expect
            logger.exception("certificate.check_failed")
            self._refused["unreadable"] += 1
            raise Refusal("unreadable", UNREADABLE) from error

    def reload(self) -> None:
        """Read the folder of authorities again, now."""
        self._folder.reload()

    async def close(self) -> None:
        """Stop fetching."""
        await self._fetched.close()
        await self._responders.close()

    def lists(self) -> Sequence[RevocationList]:
        """Return the lists that certificates are looked up in."""
        return [*(each for known in self._folder.trust.lists.values() for each in known), *self._fetched.lists()]

    def gauges(self) -> Iterator[Figure]:
        """Yield what goes up and down."""
        now = self._clock.wall()
        yield figure("ams_authn_authorities", "CAs that clients are checked by.", len(self._folder.trust.authorities))
        ages = [({"source": each.source}, (now - each.this_update) / 1000) for each in self.lists()]
        if ages:
            yield Figure("ams_authn_list_age_seconds", "Age of each revocation list.", ages)
        ends = [
            ({"source": each.source}, (each.next_update - now) / 1000)
            for each in self.lists()
            if each.next_update is not None
        ]
        if ends:
            text = "Time until each revocation list is out of date; below 0 when it is."
            yield Figure("ams_authn_list_ends_in_seconds", text, ends)

    def counters(self) -> Iterator[Figure]:
        """Yield what only grows."""
        fetches, failures = self._client.requests, self._client.failures
        yield figure("ams_authn_list_fetches", "Fetches of revocation lists and OCSP answers.", fetches)
        yield figure("ams_authn_list_fetch_failures", "Those that failed.", failures)
        refused = [({"reason": kind}, float(self._refused[kind])) for kind in KINDS]
        yield Figure("ams_authn_certificates_refused", "Certificates that were not believed.", refused)

    async def _check(self, presented: Presented, address: str) -> None:
        trust = await self._folder.current()
        key = _key(presented, address)
        if self._is_remembered(key):
            self.remembered += 1
            return
        until = await self._looked_at(presented, trust, address)
        now = self._clock.wall()
        # A folder that changed meanwhile counts as changed since.
        state = (trust.generation, self._fetched.changes)
        self._passed.put(key, _Passed(now, min(now + REMEMBER, until), state))

    def _is_remembered(self, key: bytes) -> bool:
        passed = self._passed.get(key)
        if passed is None or passed.state != self._state():
            return False
        return passed.since <= self._clock.wall() < passed.until

    def _state(self) -> tuple[int, int]:
        """Return what changes whenever a verdict may change."""
        return self._folder.trust.generation, self._fetched.changes

    async def _looked_at(self, presented: Presented, trust: Trust, address: str) -> int:
        """Look at a certificate; return until when it is good, in milliseconds since the epoch."""
        leaf = read_leaf(presented.leaf)
        now = self._clock.wall()
        settings = self._settings
        if settings.trust_unknown_cas and not settings.verify_certificate:
            return now
        check_dates(leaf, now)
        chain = self._chain(leaf, presented, trust, now)
        if not settings.verify_certificate:
            return _end(chain)
        if address:
            await self._hosts.check(leaf, address)
        if len(chain) == 1:  # one that was put into the folder itself, or of any client in development
            return _end(chain)
        return min(_end(chain), await self._revocation.check(chain, trust))

    def _chain(self, leaf: Facts, presented: Presented, trust: Trust, now: Milliseconds) -> list[Facts]:
        """Return the chain of a certificate that may be used; in development that alone if it has none."""
        if self._settings.trust_unknown_cas:
            try:
                return verified_chain(leaf, presented.chain, trust, now)
            except CertificateRefused:
                return [leaf]
        check_no_proxy(leaf)
        chain = verified_chain(leaf, presented.chain, trust, now)
        check_strength(chain)
        check_usage(chain)
        return chain


def _end(chain: Sequence[Facts]) -> int:
    return min(each.not_after for each in chain)


def _key(presented: Presented, address: str) -> bytes:
    digest = hashlib.sha256(address.encode() + b"\0")
    for each in (presented.leaf, *presented.chain):
        digest.update(each.fingerprint(hashes.SHA256()))
    return digest.digest()
