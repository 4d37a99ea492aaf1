"""Who may ask: clients whose certificate is on the access list (push contract 5, P22)."""

import functools
from collections.abc import Iterable, Mapping

from cryptography import x509
from cryptography.x509.oid import NameOID

from ams.core.distinguished_names import normalised, of_certificate
from ams.core.errors import BadSettings


class AccessList:
    """Names of clients. One with `=` in it is a whole distinguished name; any other is a common name."""

    def __init__(self, entries: Iterable[str]) -> None:
        given = [entry.strip() for entry in entries if entry.strip()]
        self._names = frozenset(entry for entry in given if "=" not in entry)
        self._distinguished = frozenset(_normalised(entry) for entry in given if "=" in entry)
        self._permits = functools.lru_cache(maxsize=256)(self._judged)

    def permits(self, identity: Mapping[str, Iterable[bytes]] | None) -> bool:
        """Whether a client may ask; `identity` is what the transport tells of the connection."""
        pems = list((identity or {}).get("x509_pem_cert", ()))
        return bool(pems) and self._permits(pems[0])

    def _judged(self, pem: bytes) -> bool:
        try:
            subject = x509.load_pem_x509_certificate(pem).subject
        except ValueError:
            return False
        common = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        # Of several common names the last one counts, as in the normal form.
        return bool(common and common[-1].value in self._names) or of_certificate(subject) in self._distinguished


def _normalised(entry: str) -> str:
    try:
        return normalised(entry)
    except ValueError as error:
        raise BadSettings(f"acl: {entry!r}: {error}") from None
