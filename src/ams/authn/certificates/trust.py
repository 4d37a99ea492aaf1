"""Trust: the folder of authorities, as IGTF's packages and fetch-crl keep it, read again on change.

`*.pem`, `*.crt` and hashed names (`*.0` to `*.9`) hold certificates, several in a file if need be; `*.r0` to `*.r9`
hold lists of withdrawn certificates, PEM or DER, and a `*.pem` may hold some too. A broken file is logged and left out;
the others count all the same.
"""

import asyncio
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import crypto

from ams.authn.certificates.crls import RevocationList, UnreadableList
from ams.authn.certificates.names import ComparableName, subject_of
from ams.authn.certificates.reading import quietly
from ams.core.clock import Clock
from ams.outgoing.sharing import Shared

logger = structlog.get_logger("ams.authn.certificates")

LOOK_EVERY = 1000
"""Milliseconds between two looks for changes, at least."""

_CERTIFICATES = re.compile(r".*\.(pem|crt|\d)")
_LISTS = re.compile(r".*\.r\d")
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)

Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Trust:
    """What the folder held at one time."""

    authorities: tuple[x509.Certificate, ...] = ()
    lists: Mapping[ComparableName, tuple[RevocationList, ...]] = field(default_factory=dict)
    """By the name of their issuer, encoded."""
    generation: int = 0
    anchors: tuple[crypto.X509, ...] = ()
    """The authorities as OpenSSL takes them. A verification makes a store of its own: a store keeps its first time."""


class _Content(NamedTuple):
    stamp: Stamp
    certificates: tuple[x509.Certificate, ...] = ()
    lists: tuple[RevocationList, ...] = ()
    is_broken: bool = False


class TrustFolder:
    """A folder of authorities. An empty path is a folder without any."""

    def __init__(self, folder: str, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._contents: dict[str, _Content] = {}
        self._trust = Trust()
        self._looked_at: int | None = None
        self._looking: Shared[str, None] = Shared()
        self._reading = threading.Lock()
        self.reload()

    async def current(self) -> Trust:
        """Return what the folder holds, at most a second ago."""
        if self._is_due():
            await self._looking.result("", self._look)
        return self._trust

    def reload(self) -> None:
        """Read what changed, now; blocks. Raises nothing: what cannot be read is logged."""
        with self._reading:
            self._reload()

    def _reload(self) -> None:
        self._looked_at = self._clock.monotonic()
        found = self._read()
        if found != self._contents or not self._trust.generation:
            self._contents = found
            self._trust = _trust(found, self._trust.generation + 1)
            logger.info(
                "authorities.read",
                folder=self._folder,
                authorities=len(self._trust.authorities),
                lists=sum(len(each) for each in self._trust.lists.values()),
            )
            if self._folder and not self._trust.authorities:
                logger.warning("authorities.none", folder=self._folder, remedy="logins fail until it holds a CA")

    @property
    def trust(self) -> Trust:
        """What was read last."""
        return self._trust

    def _is_due(self) -> bool:
        return self._looked_at is None or self._clock.monotonic() - self._looked_at >= LOOK_EVERY

    async def _look(self) -> None:
        await asyncio.to_thread(self.reload)

    def _read(self) -> dict[str, _Content]:
        """Read the files that are new or have another stamp, and take over the others."""
        return {path: self._content(path, stamp) for path, stamp in self._stamps().items()}

    def _content(self, path: str, stamp: Stamp) -> _Content:
        known = self._contents.get(path)
        if known is not None and known.stamp == stamp:
            return known
        fresh = _content(path, stamp)
        if fresh.is_broken and known is not None and known.lists and not known.certificates:
            return known._replace(stamp=stamp)  # perhaps it is being written; its old list says when it ends
        return fresh

    def _stamps(self) -> dict[str, Stamp]:
        if not self._folder:
            return {}
        try:
            names = sorted(os.listdir(self._folder))
        except OSError as error:
            logger.error("authorities.unreadable", folder=self._folder, reason=error.strerror)
            return {path: content.stamp for path, content in self._contents.items()}  # go on with what there was
        wanted = [name for name in names if _CERTIFICATES.fullmatch(name) or _LISTS.fullmatch(name)]
        stamps = {path: _stamp(path) for path in (os.path.join(self._folder, name) for name in wanted)}
        return {path: stamp for path, stamp in stamps.items() if stamp}


def _stamp(path: str) -> Stamp | None:
    """Return what changes with a file; None for what is no file, such as a link that leads nowhere."""
    try:
        state = os.stat(path)
    except OSError:
        return None
    return (state.st_mtime_ns, state.st_size, state.st_ino) if os.path.isfile(path) else None


def _content(path: str, stamp: Stamp) -> _Content:
    try:
        with open(path, "rb") as file:
            data = file.read()
        if _LISTS.fullmatch(path):
            return _Content(stamp, lists=_lists(path, data))
        return _Content(stamp, _certificates(path, data), _lists(path, data) if b"X509 CRL" in data else ())
    except (OSError, ValueError, UnreadableList) as error:
        logger.error("authority.unreadable", file=path, reason=str(error))
        return _Content(stamp, is_broken=True)


def _certificates(path: str, data: bytes) -> tuple[x509.Certificate, ...]:
    """Read the certificates of a file; one that is broken is logged, and those beside it count."""
    blocks = [found[0] for found in _BLOCK.finditer(data) if found[1].endswith(b"CERTIFICATE")]
    if not blocks and not _BLOCK.search(data):
        return (_certificate(data),)
    read = []
    for block in blocks:
        try:
            read.append(_certificate(block))
        except ValueError as error:
            logger.error("authority.unreadable", file=path, reason=str(error))
    return tuple(read)


def _certificate(data: bytes) -> x509.Certificate:
    """Read a certificate as both libraries do that will look at it; raise `ValueError` if one of them cannot."""
    with quietly():
        is_pem = data.startswith(b"-----")
        certificate = x509.load_pem_x509_certificate(data) if is_pem else x509.load_der_x509_certificate(data)
        subject_of(certificate).public_bytes()
    try:
        crypto.X509.from_cryptography(certificate)
    except crypto.Error as error:
        raise ValueError(f"OpenSSL cannot read it: {error}") from error
    return certificate


def _lists(path: str, data: bytes) -> tuple[RevocationList, ...]:
    blocks = [found[0] for found in _BLOCK.finditer(data) if found[1] == b"X509 CRL"]
    return tuple(RevocationList.read(each, path) for each in blocks or [data])


def _trust(contents: Mapping[str, _Content], generation: int) -> Trust:
    authorities = {
        each.public_bytes(Encoding.DER): each for content in contents.values() for each in content.certificates
    }
    lists: dict[ComparableName, list[RevocationList]] = {}
    for content in contents.values():
        for each in content.lists:
            lists.setdefault(each.issuer, []).append(each)
    return Trust(
        tuple(authorities.values()),
        {issuer: tuple(found) for issuer, found in lists.items()},
        generation,
        tuple(crypto.X509.from_cryptography(each) for each in authorities.values()),
    )
