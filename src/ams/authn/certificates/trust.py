"""Trust: the folder of authorities, chains to them, and the properties that a certificate needs for a login.

The folder has the layout of IGTF's packages and fetch-crl. `*.pem`, `*.crt` and hashed names (`*.0` to `*.9`) hold one
or more certificates; `*.r0` to `*.r9` hold revocation lists, PEM or DER, and a `*.pem` may hold some too. A broken file
is logged and skipped.

OpenSSL finds and verifies chains, but checks neither signature algorithms nor key lengths. So these are checked here
for all certificates below an authority. An authority is trusted because it is in the folder.

Proxy certificates, which users of grids sign for their jobs, cannot log in: a thief needs no password for one, and no
revocation list has them.
"""

import asyncio
import contextlib
import datetime
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import crypto

from ams.authn.certificates.certificate import CertificateRefusal, ComparableName, Facts, read_der, read_subject
from ams.authn.certificates.crls import RevocationList
from ams.authn.certificates.der import PEM_BLOCK, to_der
from ams.authn.values import UNREADABLE
from ams.core.clock import Clock, Milliseconds
from ams.core.coalescing import SingleFlight

logger = structlog.get_logger("ams.authn.certificates")

LOOK_INTERVAL_MS = 1000  # shortest milliseconds between two looks for changes
MAX_CHAIN_CERTIFICATES = 16  # certificates from a client that are used, in addition to its own

_FILES = re.compile(r".*\.(pem|crt|r?\d)")
_LISTS = re.compile(r".*\.r\d")
_NO_ISSUER_CODES = {2, 19, 20, 21}  # OpenSSL's, of a chain that is incomplete or ends in an unknown certificate
_TEXTS = {
    **dict.fromkeys(_NO_ISSUER_CODES, "Your certificate is not of a CA that is trusted here"),
    7: "Your certificate is not signed by the CA it names",
    9: "Your certificate is not active yet",
    10: "Your certificate has expired",
    18: "Your certificate is self-signed, and not trusted here",
    **dict.fromkeys((24, 79), "Your certificate is signed by one that is no CA"),
    25: "Your certificate is of a CA below one that allows no such CA",
    34: "Your certificate has a critical extension that is not understood here",
    **dict.fromkeys((47, 48), "Your certificate has a name that its CA may not sign"),
}
_NOT_YET_CODE, _EXPIRED_CODE = 9, 10
_FORGEABLE_HASHES = {"md5", "sha1"}
_MIN_BITS, _MIN_CURVE_BITS = 2048, 224
_CLIENT_USAGES = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
_PROXY_INFO = {"1.3.6.1.5.5.7.1.14", "1.3.6.1.4.1.3536.1.222"}  # RFC 3820; Globus, older than the RFC
_OLD_PROXY_NAMES = {"proxy", "limited proxy"}  # common names of the oldest kind, which has no extension

_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class TrustStore:
    """Content of the folder at one time: authorities, and lists by their issuer."""

    authorities: tuple[crypto.X509, ...] = ()
    lists: Mapping[ComparableName, tuple[RevocationList, ...]] = field(default_factory=dict)
    generation: int = 0


class _Content(NamedTuple):
    stamp: _Stamp
    certificates: tuple[bytes, ...] = ()  # DER
    lists: tuple[RevocationList, ...] = ()


class TrustFolder:
    """A folder of authorities. An empty path is an empty folder."""

    def __init__(self, folder: str, clock: Clock) -> None:
        self._folder, self._clock = folder, clock
        self._contents: dict[str, _Content] = {}
        self.trust = TrustStore()  # the content read last
        self._looking: SingleFlight[str, None] = SingleFlight()
        self._reading = threading.Lock()
        self.reload()

    async def current(self) -> TrustStore:
        """Return the content of the folder, at most a second old."""
        if self._clock.monotonic() - self._looked_at >= LOOK_INTERVAL_MS:
            await self._looking.result("", lambda: asyncio.to_thread(self.reload))
        return self.trust

    def reload(self) -> None:
        """Reload changed files now; blocking. Raises nothing: unreadable files are logged."""
        with self._reading:
            self._looked_at = self._clock.monotonic()
            found = {path: self._content(path, stamp) for path, stamp in self._stamps().items()}
            if found == self._contents and self.trust.generation:
                return
            self._contents = found
            ders = dict.fromkeys(each for content in found.values() for each in content.certificates)
            authorities = tuple(crypto.load_certificate(crypto.FILETYPE_ASN1, each) for each in ders)
            lists: dict[ComparableName, tuple[RevocationList, ...]] = {}
            for each in (each for content in found.values() for each in content.lists):
                lists[each.issuer] = (*lists.get(each.issuer, ()), each)
            self.trust = TrustStore(authorities, lists, self.trust.generation + 1)
            count = sum(map(len, lists.values()))
            logger.info("authorities.read", folder=self._folder, authorities=len(authorities), lists=count)
            if self._folder and not authorities:
                logger.warning("authorities.none", folder=self._folder, remedy="logins fail until it holds a CA")

    def _content(self, path: str, stamp: _Stamp) -> _Content:
        if (known := self._contents.get(path)) is not None and known.stamp == stamp:
            return known
        try:
            with open(path, "rb") as file:
                data = file.read()
            is_list = _LISTS.fullmatch(path) is not None
            certificates = () if is_list else _certificates(path, data)
            blocks = [found[0] for found in PEM_BLOCK.finditer(data) if found[1] == b"X509 CRL"] or [data]
            lists = (RevocationList.read(each, path) for each in blocks if is_list or b"X509 CRL" in data)
            return _Content(stamp, certificates, tuple(lists))
        except (OSError, ValueError) as error:
            logger.error("authority.unreadable", file=path, reason=str(error))
        if known is not None and known.lists and not known.certificates:
            return known._replace(stamp=stamp)  # the file may be half written; its old list still has its expiry
        return _Content(stamp)

    def _stamps(self) -> dict[str, _Stamp]:
        if not self._folder:
            return {}
        try:
            entries = sorted(os.scandir(self._folder), key=lambda each: each.name)
        except OSError as error:
            logger.error("authorities.unreadable", folder=self._folder, reason=error.strerror)
            return {path: content.stamp for path, content in self._contents.items()}  # keep the previous content
        stamps: dict[str, _Stamp] = {}
        for each in entries:
            with contextlib.suppress(OSError):  # removed just now
                if _FILES.fullmatch(each.name) and each.is_file():
                    state = each.stat()
                    stamps[each.path] = state.st_mtime_ns, state.st_size, state.st_ino
        return stamps


def _certificates(path: str, data: bytes) -> tuple[bytes, ...]:
    """Parse the certificates of a file. A broken one is logged, the others count."""
    blocks = [found[0] for found in PEM_BLOCK.finditer(data) if found[1].endswith(b"CERTIFICATE")]
    if not blocks and not PEM_BLOCK.search(data):
        return (_certificate(data),)
    found = []
    for block in blocks:
        try:
            found.append(_certificate(block))
        except ValueError as error:
            logger.error("authority.unreadable", file=path, reason=str(error))
    return tuple(found)


def _certificate(data: bytes) -> bytes:
    der = to_der(data)
    read_subject(der).public_bytes()
    try:
        crypto.load_certificate(crypto.FILETYPE_ASN1, der)
    except crypto.Error as error:
        raise ValueError(f"OpenSSL cannot read it: {error}") from error
    return der


def checked_chain(leaf: Facts, others: Sequence[bytes], trust: TrustStore, now: Milliseconds) -> list[Facts]:
    """Return the verified chain of a certificate that may log in. Raises `CertificateRefusal`."""
    if any(each.oid.dotted_string in _PROXY_INFO for each in leaf.extensions) or _is_old_proxy(leaf):
        text = "Your certificate is a proxy certificate, which cannot log in. Use the host or user certificate itself"
        raise CertificateRefusal("proxy", text)
    chain = verified_chain(leaf, others, trust, now)
    for depth, each in enumerate(chain[:-1]):
        weakness = _weakness(each.certificate)
        if weakness and depth:
            text = f"Your certificate is of a CA whose own has {weakness.partition(':')[0]}: "
            raise CertificateRefusal("chain", text + each.subject.rfc4514_string())
        if weakness:
            raise CertificateRefusal("chain", f"Your certificate has {weakness}")
    _check_usage(chain)
    return chain


def check_dates(leaf: Facts, now: Milliseconds) -> None:
    """Raise `CertificateRefusal` outside the certificate's validity, in the contract's order (9.2)."""
    if now > leaf.not_after + 999:  # its last second counts in full
        raise CertificateRefusal("expired", "Your certificate has expired")
    if now < leaf.not_before:
        raise CertificateRefusal("not_yet_valid", "Your certificate is not active yet")


def verified_chain(leaf: Facts, others: Sequence[bytes], trust: TrustStore, now: Milliseconds) -> list[Facts]:
    """Return the chain to a self-signed authority if there is one, else to any in the folder (contract 9.1).

    `others` are the certificates sent by the client, in any order (DER). Raises `CertificateRefusal`.
    """
    try:
        certificate = crypto.load_certificate(crypto.FILETYPE_ASN1, leaf.der)
    except crypto.Error as error:
        raise CertificateRefusal("unreadable", UNREADABLE) from error
    presented = []
    for each in others[:MAX_CHAIN_CERTIFICATES]:
        with contextlib.suppress(crypto.Error):  # unusable in a chain
            presented.append(crypto.load_certificate(crypto.FILETYPE_ASN1, each))
    for flags in (0, crypto.X509StoreFlags.PARTIAL_CHAIN):
        try:
            found = crypto.X509StoreContext(_store(trust, now, flags), certificate, presented).get_verified_chain()
            break
        except crypto.X509StoreContextError as error:
            if flags or error.errors[0] not in _NO_ISSUER_CODES:
                raise _refusal(error) from error
    return [leaf, *(read_der(crypto.dump_certificate(crypto.FILETYPE_ASN1, link)) for link in found[1:])]


def is_issued_by(certificate: Facts, issuer: Facts, now: Milliseconds) -> bool:
    """Return whether a CA itself has signed a certificate that is valid now."""
    try:
        verified_chain(certificate, (), TrustStore((crypto.load_certificate(crypto.FILETYPE_ASN1, issuer.der),)), now)
    except (CertificateRefusal, crypto.Error):
        return False
    return True


def _store(trust: TrustStore, now: Milliseconds, flags: int) -> crypto.X509Store:
    """Return a store for one verification at one time; takes half a microsecond for each authority.

    A store keeps its first time (`X509_STORE_set1_param` overwrites nothing), and pyOpenSSL cannot set the time of a
    store's context.
    """
    store = crypto.X509Store()
    for each in trust.authorities:
        store.add_cert(each)
    if flags:
        store.set_flags(flags)
    store.set_time(datetime.datetime.fromtimestamp(now // 1000, datetime.UTC))
    return store


def _refusal(error: crypto.X509StoreContextError) -> CertificateRefusal:
    code, depth, said = error.errors
    if depth == 0 or code not in (_EXPIRED_CODE, _NOT_YET_CODE):
        return CertificateRefusal("chain", _TEXTS.get(code, f"Your certificate cannot be verified: {said}"))
    state = "has expired" if code == _EXPIRED_CODE else "is not active yet"
    try:
        name = read_subject(crypto.dump_certificate(crypto.FILETYPE_ASN1, error.certificate)).rfc4514_string()
    except ValueError:
        name = "a name that cannot be read"
    return CertificateRefusal("chain", f"Your certificate is of a CA whose own {state}: {name}")


def _weakness(certificate: x509.Certificate) -> str:
    try:
        algorithm, key = certificate.signature_hash_algorithm, certificate.public_key()
    except (UnsupportedAlgorithm, ValueError):
        return "a key or a signature that cannot be read"
    if algorithm is not None and algorithm.name in _FORGEABLE_HASHES:
        return f"a signature that is too weak: {algorithm.name}"
    if isinstance(key, rsa.RSAPublicKey | dsa.DSAPublicKey) and key.key_size < _MIN_BITS:
        return "a key that is too short"
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.key_size < _MIN_CURVE_BITS:
        return "a key that is too short"
    return ""


def _check_usage(chain: Sequence[Facts]) -> None:
    """Raise `CertificateRefusal` if a certificate or its CA is not for clients (contract 9.1)."""
    leaf = chain[0]
    if leaf.is_ca:
        raise CertificateRefusal("usage", "Your certificate is one of a CA, which cannot log in")
    if not _is_for_clients(leaf):
        raise CertificateRefusal("usage", "Your certificate is not for clients: its extended key usage does not say so")
    usage = leaf.extension(x509.KeyUsage)
    if usage is not None and not (usage.digital_signature or usage.key_agreement):
        raise CertificateRefusal("usage", "Your certificate is not for clients: its key usage allows no signature")
    for each in chain[1:]:
        if not _is_for_clients(each):
            text = f"Your certificate is of a CA that is not for clients: {each.subject.rfc4514_string()}"
            raise CertificateRefusal("usage", text)


def _is_for_clients(certificate: Facts) -> bool:
    extended = certificate.extension(x509.ExtendedKeyUsage)
    return extended is None or not _CLIENT_USAGES.isdisjoint(extended)


def _is_old_proxy(leaf: Facts) -> bool:
    """Return whether the subject is the issuer's plus `CN=proxy`: then the issuer is the user."""
    if not leaf.subject.rdns:
        return False
    *before, last = leaf.subject.rdns
    common_names = {each.value for each in last if each.oid == NameOID.COMMON_NAME}
    return before == leaf.issuer.rdns and not _OLD_PROXY_NAMES.isdisjoint(common_names)
