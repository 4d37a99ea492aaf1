"""The data folder of the certificate service: keys, lock and database. It may be AMS's own, running or not.

All names begin with `authn`, which AMS's folder does not mind (`ams.storage.folder`).
"""

import os
from dataclasses import dataclass

from ams.core.errors import Unusable
from ams.storage.files import Disk, write_whole
from ams.storage.folder import CERTIFICATE_SERVICE, check_not_foreign, is_ours, locked
from ams.storage.secrets import key_file, new_token, parse_key

LOCK = f"{CERTIFICATE_SERVICE}.lock"
_MAX_KEY_BYTES = 4096


@dataclass(slots=True)
class AuthnFolder:
    """A locked data folder and the places in it."""

    path: str
    _lock: int | None = None

    @classmethod
    def take(cls, path: str) -> "AuthnFolder":
        """Make or open the folder and lock it; raises `Unusable` with one line when that cannot be."""
        path = os.path.abspath(path)
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            _check_not_foreign(path)
        except OSError as error:
            raise Unusable(f"data folder {path}: {error.strerror}; choose another with --data") from error
        return cls(path, locked(path, LOCK, "another certificate service"))

    def place(self, name: str) -> str:
        """Return the path of something in the folder."""
        return os.path.join(self.path, f"{CERTIFICATE_SERVICE}{name}")

    @property
    def database(self) -> str:
        """The database, if it is not PostgreSQL."""
        return self.place(".db")

    @property
    def has_database(self) -> bool:
        """Whether something was stored here already."""
        return os.path.exists(self.database)

    @property
    def key(self) -> str:
        """The management key."""
        return self.place(".key")

    @property
    def seal(self) -> str:
        """The key that encrypts stored secrets."""
        return self.place(".seal")

    @property
    def audit(self) -> str:
        """The file of the audit log."""
        return self.place("-audit.jsonl")

    @property
    def crls(self) -> str:
        """Revocation lists that were fetched."""
        return self.place("-crls")

    @property
    def tls(self) -> str:
        """The local CA and what it signed."""
        return self._made("-tls")

    def management_key(self, given: str) -> str:
        """Return the management key: the one given, else that of the file, which is made at the first start (A9)."""
        if given:
            return given
        try:
            if not os.path.exists(self.key):
                write_whole(Disk(), self.key, f"{new_token()}\n".encode())
            with open(self.key, encoding="ascii") as file:
                key = file.read(_MAX_KEY_BYTES).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unusable(f"{self.key}: the management key cannot be read: {error}") from error
        if not key:
            raise Unusable(f"{self.key} is empty; remove it, and the next start makes a new management key")
        return key

    def seal_key(self, given: str, *, create: bool) -> bytes:
        """Return the key of stored secrets; with `create`, one is made when there is none."""
        return parse_key(given) if given else key_file(self.seal, create=create)

    def release(self) -> None:
        """Let the next process have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _made(self, name: str) -> str:
        path = self.place(name)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path


def _check_not_foreign(path: str) -> None:
    if not is_ours(path) and not os.path.exists(os.path.join(path, LOCK)):
        check_not_foreign(path, lambda name: name.startswith(CERTIFICATE_SERVICE))
