"""What issuers answer: JSON objects that are read with care, and one error for all that is wrong with them."""

import ssl
from typing import Any

import msgspec

from ams.outgoing.fetching import Fetcher
from ams.outgoing.guard import Guard

SECONDS = 5.0
"""For one answer of an issuer."""
MOST_BYTES = 1024 * 1024
"""Of one answer."""
ACCEPT = {"Accept": "application/json"}

_decoder = msgspec.json.Decoder(dict[str, Any])


class IssuerFailed(Exception):
    """An issuer does not do its part; the text says how, for administrators and a log, not for who logs in."""


def new_fetcher(guard: Guard, tls: ssl.SSLContext | None = None) -> Fetcher:
    """Return what issuers are asked with: through `guard`, by https that is trusted by `tls` or the system's CAs."""
    return Fetcher(guard, SECONDS, MOST_BYTES, tls)


def read_object(data: bytes, what: str) -> dict[str, Any]:
    """Read a JSON object; raise `IssuerFailed`, which says that `what` is none. Of a name that is there twice, the last
    counts.
    """
    try:
        return _decoder.decode(data)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors; the latter is for one that is too deep
        raise IssuerFailed(f"{what} is no JSON object") from None
