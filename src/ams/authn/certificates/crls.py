"""Lists of withdrawn certificates (CRLs): read, verified, and fetched by URL (contract 9.2; 15, A10).

A list is read once, indexed, and believed only for its own scope. One that is fetched by URL is verified, kept until
it ends, and fetched again before that. Only lists that the certificate's own CA has signed are kept, so that a forged
answer takes no place of a good one; nor does an older list, which could be sent again on the way. A good list is
also kept as a file, so that a start needs no fetch.

When it is not known whether a certificate was withdrawn, a policy decides (`revocation`). The contract's
`Internal Error: ` is put before the texts of doubts where errors are written (`ams.authn.http.errors`).
"""

import asyncio
import contextlib
import hashlib
import os
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes

from ams.authn.certificates.reading import ComparableName, Facts, comparable, issuer_of_list, milliseconds, quietly
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AmsError, Unavailable
from ams.core.urls import without_credentials
from ams.outgoing.client import AnswerTooLong, HttpClient, RequestFailed
from ams.outgoing.sharing import Shared
from ams.storage.files import Disk, write_whole
from ams.storage.free_space import UNLIMITED, FreeSpace

logger = structlog.get_logger("ams.authn.certificates")

EARLY = 5 * 60_000  # milliseconds that the clock of a CA may be ahead
HOUR = 3_600_000
FAILED_AGAIN = 30_000  # milliseconds before a login tries a failed fetch again
REFRESH_AFTER = 6 * HOUR  # milliseconds after which a list is fetched again in any case; fetch-crl does it as often
REFRESH_FAILED = 5 * 60_000
WITHOUT_END = HOUR  # milliseconds that a list is good for which does not say how long it is
UNUSED = 24 * HOUR  # milliseconds after which a list that was not asked for is forgotten
MOST_BYTES = 64 * 1024 * 1024
"""Of all lists that are kept, as published; those that were not asked for longest go first. One is kept always."""
MOST_LISTS = 1000
MOST_REDIRECTS = 3
"""Redirects that one fetch follows. CAs move their lists, mostly to `https`; the signature makes a list valid."""
UPKEEP_SECONDS = 30.0
_UNDERSTOOD = (x509.IssuingDistributionPoint, x509.CRLNumber, x509.AuthorityKeyIdentifier)

Key = tuple[str, bytes]  # URL, and the fingerprint of the CA whose list is wanted there


class Doubt(Exception):
    """It is not known whether a certificate was revoked; `error` is raised if it is refused for that."""

    def __init__(self, source: str, error: AmsError) -> None:
        super().__init__(error.message)
        self.source = source
        self.error = error


def unreachable(url: str) -> Doubt:
    """A list that cannot be fetched (contract 9.3)."""
    url = without_credentials(url)
    return Doubt(url, Unavailable(f"Could not access CRL {url}"))


def unparsable(url: str) -> Doubt:
    """The answer is no list (contract 9.3)."""
    return Doubt(url, Unavailable("Unable to parse CRL Data"))


def too_long(url: str) -> Doubt:
    """A list that is longer than any (contract 9.3)."""
    return Doubt(url, Unavailable("Unable to read CRL Data"))


def useless(source: str, why: str) -> Doubt:
    """A list of the right CA that is not about this certificate."""
    return Doubt(source, Unavailable(f"The CRL {source} is of no use: {why}"))


class UnreadableList(Exception):
    """This is no list of withdrawn certificates."""


@dataclass(frozen=True, slots=True, eq=False)
class RevocationList:
    """A list as published, not verified before `is_signed_by`; `odd` says why it is never believed."""

    source: str
    issuer: ComparableName
    this_update: Milliseconds
    next_update: Milliseconds | None
    size: int
    odd: str
    _crl: x509.CertificateRevocationList
    _serials: frozenset[int]
    _scope: x509.IssuingDistributionPoint | None
    _signers: dict[bytes, bool] = field(default_factory=dict)  # whether the CA of a fingerprint has signed it

    @classmethod
    def read(cls, data: bytes, source: str) -> "RevocationList":
        """Read a list, PEM or DER; raise `UnreadableList`."""
        try:
            is_pem = data.lstrip().startswith(b"-----")
            crl = x509.load_pem_x509_crl(data) if is_pem else x509.load_der_x509_crl(data)
            with quietly():  # not the whole: a long list takes a while, and other requests wait
                scopes = (each.value for each in crl.extensions)
                scope = next((each for each in scopes if isinstance(each, x509.IssuingDistributionPoint)), None)
                issuer, odd = comparable(issuer_of_list(crl)), _odd(crl.extensions, scope)
                since, until = crl.last_update_utc, crl.next_update_utc
            serials = frozenset(each.serial_number for each in crl)
        except Exception as error:  # a parser's, of many kinds
            raise UnreadableList(str(error)) from error
        end = None if until is None else milliseconds(until)
        return cls(source, issuer, milliseconds(since), end, len(data), odd, crl, serials, scope)

    def __len__(self) -> int:
        return len(self._serials)

    def is_signed_by(self, issuer: Facts) -> bool:
        """Whether a CA has signed it, and may; costs much the first time for a long list."""
        fingerprint = issuer.certificate.fingerprint(hashes.SHA256())
        if fingerprint not in self._signers:
            usage = issuer.extension(x509.KeyUsage)
            may_sign = self.issuer == comparable(issuer.subject) and (usage is None or usage.crl_sign)
            self._signers[fingerprint] = may_sign and self._verified(issuer.certificate)
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
        """Whether it is valid now."""
        return not self.is_ahead(now) and (self.next_update is None or now < self.next_update)

    def is_ahead(self, now: Milliseconds) -> bool:
        """Whether its time is in the future."""
        return self.this_update > now + EARLY

    def revokes(self, serial: int) -> bool:
        """Whether a certificate with this serial number is withdrawn."""
        if serial not in self._serials:
            return False
        entry = self._crl.get_revoked_certificate_by_serial_number(serial)
        if entry is None:
            return True
        try:
            reason = entry.extensions.get_extension_for_class(x509.CRLReason).value.reason
        except Exception:  # no reason, or one that cannot be read
            return True
        return reason is not x509.ReasonFlags.remove_from_crl

    def ends_at(self, now: Milliseconds) -> Milliseconds:
        """Return the end of a current list."""
        return self.next_update if self.next_update is not None else Milliseconds(now + WITHOUT_END)

    def _verified(self, ca: x509.Certificate) -> bool:
        try:
            return self._crl.is_signature_valid(ca.public_key())  # type: ignore[arg-type]
        except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
            return False


def _odd(extensions: x509.Extensions, scope: x509.IssuingDistributionPoint | None) -> str:
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


@dataclass(frozen=True, slots=True)
class Found:
    """The newest list of a URL that its CA has signed, and why the last fetch failed. Moments are by the wall clock.

    The list is fetched again at `again_at`, and before `noted_at`: the machine's time may be put back.
    """

    issuer: Facts
    list: RevocationList | None
    doubt: Doubt | None
    noted_at: int
    again_at: int
    refresh_at: int
    used_at: int  # of the monotonic clock: a wrong time of day forgets no list


class FetchedLists:
    """Lists by URL. `folder` is where they are kept; empty: nothing is kept over a restart."""

    def __init__(self, client: HttpClient, clock: Clock, folder: str = "", space: FreeSpace = UNLIMITED) -> None:
        self._client = client
        self._clock = clock
        self._folder = folder
        self._space = space
        # Not an `LruCache`: it has two limits, and a refresh, which puts a list, is no use of it.
        self._known: OrderedDict[Key, Found] = OrderedDict()
        self._going_on: Shared[Key, Found] = Shared()
        self._upkeep: asyncio.Task[None] | None = None
        self.changes = 0  # how often a list was replaced by another

    async def get(self, url: str, issuer: Facts) -> Found:
        """Return the state of a URL, fetched if need be."""
        key = (url, issuer.certificate.fingerprint(hashes.SHA256()))
        found = self._known.get(key)
        now = self._clock.wall()
        if found is None or not found.noted_at <= now < found.again_at:
            return await self._fetch(key, issuer)
        self._known[key] = replace(found, used_at=self._clock.monotonic())
        self._known.move_to_end(key)
        return found

    async def refresh_due(self) -> None:
        """Fetch what will end soon, or is old; forget what is not asked for."""
        now = self._clock.wall()
        for key, found in list(self._known.items()):
            if self._clock.monotonic() - found.used_at > UNUSED:
                self._known.pop(key, None)
                if self._folder:
                    with contextlib.suppress(OSError):
                        await asyncio.to_thread(os.unlink, self._path(key))
            elif not found.noted_at <= now < found.refresh_at:
                await self._fetch(key, found.issuer)

    def lists(self) -> Iterator[RevocationList]:
        """Yield the lists that are kept."""
        return (found.list for found in self._known.values() if found.list is not None)

    async def close(self) -> None:
        """Stop fetching."""
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.gather(self._upkeep, return_exceptions=True)
        await self._going_on.close()

    async def _fetch(self, key: Key, issuer: Facts) -> Found:
        if self._upkeep is None:
            self._upkeep = asyncio.create_task(self._keep_up())
        return await self._going_on.result(key, lambda: self._fetched(key, issuer))

    async def _fetched(self, key: Key, issuer: Facts) -> Found:
        before = self._known.get(key)
        kept = before.list if before else await asyncio.to_thread(self._from_file, key, issuer)
        if before is None and kept is not None and kept.is_current(self._clock.wall()):
            return self._note(key, issuer, kept, None)
        try:
            data = await self._client.get(key[0], redirects=MOST_REDIRECTS)
            fresh = await asyncio.to_thread(_verified, data, key[0], issuer)
            if fresh.is_ahead(self._clock.wall()):  # stored, it would block all newer lists until then
                raise useless(key[0], "it is of the future")
        except AnswerTooLong:
            return self._note(key, issuer, kept, too_long(key[0]))
        except RequestFailed as error:
            logger.warning("crl.not_fetched", url=without_credentials(key[0]), reason=str(error))
            return self._note(key, issuer, kept, unreachable(key[0]))
        except Doubt as doubt:
            logger.warning("crl.not_believed", url=without_credentials(key[0]), reason=str(doubt))
            return self._note(key, issuer, kept, doubt)
        if kept is not None and kept.this_update >= fresh.this_update:
            return self._note(key, issuer, kept, None)
        await asyncio.to_thread(self._to_file, key, data)
        return self._note(key, issuer, fresh, None)

    def _note(self, key: Key, issuer: Facts, kept: RevocationList | None, doubt: Doubt | None) -> Found:
        now = self._clock.wall()
        before = self._known.get(key)
        if kept is not (before.list if before else None):
            self.changes += 1
        again_at, refresh_at = now + FAILED_AGAIN, now + REFRESH_FAILED
        if kept is not None and kept.is_current(now):
            again_at = kept.ends_at(now)
            if doubt is None:
                # Some time before the end, so that one failure is no harm.
                left = again_at - now
                refresh_at = min(now + REFRESH_AFTER, again_at - max(left // 10, min(REFRESH_FAILED, left // 2)))
        used_at = before.used_at if before and now < before.again_at else self._clock.monotonic()
        found = self._known[key] = Found(issuer, kept, doubt, now, again_at, refresh_at, used_at)
        while len(self._known) > 1 and (
            len(self._known) > MOST_LISTS or sum(each.size for each in self.lists()) > MOST_BYTES
        ):
            del self._known[next(other for other in self._known if other != key)]
        return found

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            try:
                await self.refresh_due()
            except Exception:  # the next time is soon
                logger.exception("crl.upkeep_failed")

    def _path(self, key: Key) -> str:
        return os.path.join(self._folder, hashlib.sha256(key[0].encode() + b"\0" + key[1]).hexdigest() + ".crl")

    def _from_file(self, key: Key, issuer: Facts) -> RevocationList | None:
        if not self._folder:
            return None
        try:
            with open(self._path(key), "rb") as file:
                return _verified(file.read(), key[0], issuer)
        except (OSError, Doubt):  # there is none, or a crash has torn it
            return None

    def _to_file(self, key: Key, data: bytes) -> None:
        if not self._folder:
            return
        refusal = self._space.growth_refusal()
        if refusal is not None:
            logger.warning("crl.not_kept", url=without_credentials(key[0]), reason=refusal)
            return
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            write_whole(Disk(), self._path(key), data)
        except OSError as error:
            logger.warning("crl.not_kept", url=without_credentials(key[0]), reason=error.strerror)


def _verified(data: bytes, url: str, issuer: Facts) -> RevocationList:
    try:
        found = RevocationList.read(data, url)
    except UnreadableList as error:
        raise unparsable(url) from error
    if not found.is_signed_by(issuer):
        raise Doubt(url, Unavailable(f"The CRL {url} is not signed by the CA of the certificate"))
    return found
