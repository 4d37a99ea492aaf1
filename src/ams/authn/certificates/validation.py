"""Checks: validates a certificate, as contract 9 with the corrections of section 15.

Order: parsable fields, dates, proxy certificates, chain, usage, host, revocation. The host check compares the names of
the client's address with those of the certificate (15, A12). Only names that resolve to the address count, because the
owner of an address chooses its reverse names.
"""

import asyncio
import hashlib
import ipaddress
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from ams.authn.certificates.certificate import KINDS, CertificateRefusal, Facts, read_leaf
from ams.authn.certificates.crls import CrlCache, RevocationList
from ams.authn.certificates.revocation import Responders, Revocation
from ams.authn.certificates.trust import TrustFolder, TrustStore, check_dates, checked_chain, verified_chain
from ams.authn.settings import AuthnSettings
from ams.authn.values import UNREADABLE, Presented
from ams.core.cache import LruCache
from ams.core.clock import Clock
from ams.core.errors import AmsError, CertificateRefused, Unavailable
from ams.core.telemetry import Figure, figure
from ams.outgoing.address_guard import Address, Guard, Lookups, in_thread
from ams.outgoing.client import HttpClient
from ams.storage.free_space import UNLIMITED, FreeSpace

logger = structlog.get_logger("ams.authn.certificates")

VERDICT_TTL_MS = 60_000  # longest milliseconds for which a valid certificate is not checked again
MAX_CACHED_VERDICTS = 10_000
WAIT_SECONDS = 4.0  # longest wait of a login for the names of its address
MAX_LOOKUP_THREADS = 16  # concurrent look-ups of names; more of them wait
_MAX_NAMES = 8  # of one address that are compared


class _Verdict(NamedTuple):
    since: int  # valid from then on: the system clock may be set back
    until: int
    state: tuple[int, int]  # changes whenever a verdict may change


class CertificateChecks:
    """Decides whether certificates are valid now. `close` it."""

    def __init__(
        self, settings: AuthnSettings, guard: Guard, clock: Clock, crl_folder: str = "", *,
        hosts: "HostCheck | None" = None, space: FreeSpace = UNLIMITED,
    ) -> None:  # fmt: skip
        """`crl_folder` stores fetched lists across restarts, while there is `space`; empty: not stored."""
        self._settings, self._clock = settings, clock
        self._folder = TrustFolder(settings.client_ca, clock)
        self._client = HttpClient(guard)
        self._fetched = CrlCache(self._client, clock, crl_folder, space)
        self._responders = Responders(self._client, clock)
        asked = self._responders if settings.ocsp else None
        self._revocation = Revocation(self._fetched, asked, settings.revocation, clock)
        self._hosts = hosts or HostCheck()
        self._passed: LruCache[bytes, _Verdict] = LruCache(MAX_CACHED_VERDICTS)
        self._refused: Counter[str] = Counter()
        self.remembered = 0  # checks answered from the cache

    async def check(self, presented: Presented, address: str, *, verify_host: bool) -> None:
        """Raise `CertificateRefused`, or `Unavailable` if its CA's lists cannot be fetched; nothing else."""
        try:
            await self._check(presented, address if verify_host else "")
        except CertificateRefused as error:
            self._refused[error.kind if isinstance(error, CertificateRefusal) else "chain"] += 1
            raise
        except Unavailable:
            self._refused["doubt"] += 1
            raise
        except AmsError:
            raise
        except Exception as error:  # a certificate that the parsers do not expect
            logger.exception("certificate.check_failed")
            self._refused["unreadable"] += 1
            raise CertificateRefusal("unreadable", UNREADABLE) from error

    def reload(self) -> None:
        """Reload the folder of authorities now."""
        self._folder.reload()

    async def close(self) -> None:
        """Stop fetching."""
        await self._fetched.close()
        await self._responders.close()

    def lists(self) -> Sequence[RevocationList]:
        """Return the revocation lists in use."""
        return [*(each for known in self._folder.trust.lists.values() for each in known), *self._fetched.lists()]

    def gauges(self) -> Iterator[Figure]:
        """Yield the gauges."""
        now, lists = self._clock.wall(), self.lists()
        yield figure("ams_authn_authorities", "CAs that clients are checked by.", len(self._folder.trust.authorities))
        if ages := [({"source": each.source}, (now - each.this_update) / 1000) for each in lists]:
            yield Figure("ams_authn_list_age_seconds", "Age of each revocation list.", ages)
        bounded = [(each.source, each.next_update) for each in lists if each.next_update is not None]
        if ends := [({"source": source}, (end - now) / 1000) for source, end in bounded]:
            text = "Time until each revocation list is out of date; below 0 when it is."
            yield Figure("ams_authn_list_ends_in_seconds", text, ends)

    def counters(self) -> Iterator[Figure]:
        """Yield the counters."""
        fetches, failures = self._client.requests, self._client.failures
        yield figure("ams_authn_list_fetches", "Fetches of revocation lists and OCSP answers.", fetches)
        yield figure("ams_authn_list_fetch_failures", "Those that failed.", failures)
        refused = [({"reason": kind}, float(self._refused[kind])) for kind in KINDS]
        yield Figure("ams_authn_certificates_refused", "Certificates that were not believed.", refused)

    async def _check(self, presented: Presented, address: str) -> None:
        trust = await self._folder.current()
        digest = hashlib.sha256(address.encode() + b"\0" + presented.shown)
        digest.update(presented.leaf.fingerprint(hashes.SHA256()))
        for each in presented.chain:
            digest.update(hashlib.sha256(each).digest())
        passed, state = self._passed.get(digest.digest()), (trust.generation, self._fetched.changes)
        if passed is not None and passed.state == state and passed.since <= self._clock.wall() < passed.until:
            self.remembered += 1
            return
        until = await self._looked_at(presented, trust, address)
        now = self._clock.wall()
        # A folder that changed meanwhile counts as changed later.
        state = (trust.generation, self._fetched.changes)
        self._passed.put(digest.digest(), _Verdict(now, min(now + VERDICT_TTL_MS, until), state))

    async def _looked_at(self, presented: Presented, trust: TrustStore, address: str) -> int:
        leaf = read_leaf(presented.leaf, presented.shown)
        now, settings = self._clock.wall(), self._settings
        if settings.trust_unknown_cas and not settings.verify_certificate:
            return now
        check_dates(leaf, now)
        try:
            chain = (verified_chain if settings.trust_unknown_cas else checked_chain)(leaf, presented.chain, trust, now)
        except CertificateRefused:
            if not settings.trust_unknown_cas:
                raise
            chain = [leaf]  # any client, in development
        end = min(each.not_after for each in chain)
        if not settings.verify_certificate:
            return end
        if address:
            await self._hosts.check(leaf, address)
        if len(chain) == 1:  # a certificate in the folder itself, or any client in development
            return end
        return min(end, await self._revocation.check(chain, trust))


def _system_names(address: str) -> Sequence[str]:
    name, aliases, _ = socket.gethostbyaddr(address)
    return list(dict.fromkeys(each.removesuffix(".") for each in (name, *aliases) if each))


class HostCheck:
    """Compares the names of an address with those of a certificate. `find` runs in threads of their own."""

    def __init__(
        self, find: Callable[[str], Sequence[str]] = _system_names,
        addresses: Callable[[str, int], Awaitable[Sequence[str]]] | None = None, wait_seconds: float = WAIT_SECONDS,
    ) -> None:  # fmt: skip
        self._find, self._addresses, self._wait_seconds = find, addresses or Lookups(), wait_seconds
        self._places = asyncio.Semaphore(MAX_LOOKUP_THREADS)

    async def check(self, leaf: Facts, address: str) -> None:
        """Raise `CertificateRefusal` unless a name of the address is in the certificate (contract 9.3, always 403)."""
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            raise CertificateRefusal("host", f"lookup {address}: unrecognized address") from None
        try:
            found = list(await self.names_of(str(ip)))[:_MAX_NAMES]
        except (OSError, UnicodeError) as error:
            why = "no such host"
            if isinstance(error, socket.herror | socket.gaierror) and error.errno == socket.EAI_AGAIN:
                why = str(error.strerror)
            raise CertificateRefusal("host", f"lookup {ip.reverse_pointer}.: {why}") from error
        if not found:
            raise CertificateRefusal("host", f"lookup {ip.reverse_pointer}.: no such host")
        if not (confirmed := [name for name in found if await self._leads_to(name, ip)]):
            raise CertificateRefusal("host", f"lookup {found[0]}.: its addresses do not include {ip}")
        if not any(_matches(name, pattern) for name in confirmed for pattern in _dns_names(leaf)):
            raise CertificateRefusal("host", _mismatch_text(leaf, confirmed[0]))

    async def names_of(self, address: str) -> Sequence[str]:
        """Return the reverse names of an address, without final dots. Raises `OSError` without any, or on timeout."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
                return await in_thread(lambda: self._find(address), "ams-authn-names", self._places.release)
        except TimeoutError:
            raise socket.herror(socket.EAI_AGAIN, "the name servers do not answer") from None
        except RuntimeError as error:
            raise socket.herror(socket.EAI_AGAIN, f"names cannot be looked up: {error}") from error

    async def _leads_to(self, name: str, ip: Address) -> bool:
        try:
            addresses = await self._addresses(name, 0)
        except (OSError, UnicodeError):
            return False
        return any(ipaddress.ip_address(each) == ip for each in addresses)


def _dns_names(leaf: Facts) -> list[str]:
    extension = leaf.extension(x509.SubjectAlternativeName)
    return extension.get_values_for_type(x509.DNSName) if extension is not None else []


def _matches(name: str, pattern: str) -> bool:
    """Return whether a name matches one in a certificate: any case, without final dot; `*` as first label."""
    host, wanted = (each.lower().removesuffix(".").split(".") for each in (name, pattern))
    if len(host) != len(wanted) or not all(host) or not all(wanted):
        return False
    if wanted[0] == "*" and len(wanted) > 1:
        return host[1:] == wanted[1:]
    return host == wanted


def _mismatch_text(leaf: Facts, name: str) -> str:
    """Return the error text for a certificate without a host's name (contract 9.3), which ends with a dot there."""
    if names := _dns_names(leaf):
        return f"x509: certificate is valid for {', '.join(names)}, not {name}."
    commons = [str(each.value) for each in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    has_names = leaf.extension(x509.SubjectAlternativeName) is not None
    if commons and not has_names and _matches(name, commons[-1]):
        return "x509: certificate relies on legacy Common Name field, use SANs instead"
    return f"x509: certificate is not valid for any names, but wanted to match {name}."
