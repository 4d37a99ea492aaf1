"""Refusals: what is said to a client whose certificate is not believed, and how each is counted."""

from ams.core.errors import CertificateRefused

UNREADABLE, EXPIRED, NOT_YET = "unreadable", "expired", "not_yet_valid"
PROXY, CHAIN, USAGE, HOST = "proxy", "chain", "usage", "host"
REVOKED, UNKNOWN, NO_LIST, DOUBT = "revoked", "unknown", "no_list", "doubt"
"""Kinds; the last is that of a certificate of which nobody can say whether it was withdrawn."""
KINDS = (UNREADABLE, EXPIRED, NOT_YET, PROXY, CHAIN, USAGE, HOST, REVOKED, UNKNOWN, NO_LIST, DOUBT)


class Refusal(CertificateRefused):
    """A certificate that is not believed; `kind` is one of `KINDS`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
