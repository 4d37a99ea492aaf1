"""Kept keys: a file for each issuer with the keys it gave last, so that a start needs no issuer."""

import contextlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from ams.core.clock import Milliseconds
from ams.core.issuer import Issuer
from ams.identity.answers import IssuerFailed
from ams.identity.jwks import KeySet, PublishedKey
from ams.storage.files import Disk, write_whole

logger = structlog.get_logger("ams.identity")


class Kept(NamedTuple):
    """Keys as they were kept."""

    keys: KeySet
    fetched_on: Milliseconds


class _File(msgspec.Struct):
    url: str
    jwks_url: str
    """As set, thus usually empty."""
    fetched_on: int
    keys: list[dict[str, Any]]


_decoder = msgspec.json.Decoder(_File)


class KeptKeys:
    """The files. What cannot be read or written is logged, and is as if it were not there."""

    def __init__(self, folder: str) -> None:
        """`folder` is made when it is needed; empty: nothing is kept."""
        self._folder = folder

    def read(self, issuer: Issuer) -> Kept | None:
        """Return what was kept for an issuer of this name and these URLs."""
        if not self._folder:
            return None
        try:
            with open(self._path(issuer), "rb") as file:
                kept = _decoder.decode(file.read())
            if (kept.url, kept.jwks_url) != (issuer.url, issuer.jwks_url):
                return None
            return Kept(KeySet.of(kept.keys), Milliseconds(kept.fetched_on))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError, IssuerFailed) as error:
            logger.warning("issuer.kept_keys_unreadable", issuer=issuer.name, reason=str(error))
            return None

    def write(self, issuer: Issuer, keys: Sequence[PublishedKey], fetched_on: Milliseconds) -> None:
        """Keep keys in place of those before."""
        if not self._folder:
            return
        file = _File(issuer.url, issuer.jwks_url, fetched_on, [key.published() for key in keys])
        try:
            Disk().make_folder(self._folder)
            write_whole(Disk(), self._path(issuer), msgspec.json.encode(file))
        except OSError as error:
            logger.warning("issuer.keys_not_kept", issuer=issuer.name, reason=error.strerror)

    def remove(self, issuer: Issuer) -> None:
        """Keep nothing for an issuer of this name."""
        if self._folder:
            with contextlib.suppress(OSError):
                os.unlink(self._path(issuer))

    def _path(self, issuer: Issuer) -> str:
        return os.path.join(self._folder, f"{issuer.name}.json")
