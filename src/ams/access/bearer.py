"""Tokens that came in `Authorization: Bearer` (RFC 6750, 2.1), and who is asked about those of issuers."""

import re
from typing import Protocol

from ams.storage.registry.records import Principal

_OWN = re.compile(r"[0-9a-f]{64}")


class Bearer(str):
    """A token that may be an issuer's. Any other text is looked for among AMS's own only."""

    __slots__ = ()

    @property
    def is_jwt(self) -> bool:
        """Whether it has the form of a signed token (RFC 7515, 3.1), which no token of AMS's has."""
        return self.count(".") == 2

    @property
    def looks_own(self) -> bool:
        """Whether it has the form of the tokens AMS makes; no issuer is asked about those."""
        return _OWN.fullmatch(self) is not None


class Logins(Protocol):
    """Tells whom an issuer's token stands for."""

    def known(self, token: str) -> Principal | None:
        """Return what `principal` would return, if that takes no waiting; None says nothing."""
        ...

    async def principal(self, token: str) -> Principal:
        """Return whom a token stands for; raise `TokenRefused`, which says why it does not do."""
        ...


def bearer_of(authorization: bytes) -> Bearer | None:
    """Return the token of an `Authorization` header; None for another scheme, and for one that cannot be read.

    The scheme's letter case does not matter (RFC 9110, 11.1).
    """
    parts = authorization.split()
    if len(parts) != 2 or parts[0].lower() != b"bearer":
        return None
    return Bearer(parts[1].decode("latin-1"))
