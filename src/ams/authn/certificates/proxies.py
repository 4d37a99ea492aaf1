"""Proxy certificates: users of grids sign them for themselves, for jobs. They log nobody in here.

Whoever gets hold of one has it without a password, and none of the lists of withdrawn certificates knows them.
"""

from cryptography.x509.oid import NameOID

from ams.authn.certificates import refusals
from ams.authn.certificates.reading import Facts
from ams.authn.certificates.refusals import Refusal

_PROXY_INFO = {
    "1.3.6.1.5.5.7.1.14",  # RFC 3820
    "1.3.6.1.4.1.3536.1.222",  # Globus, before there was the RFC
}
_OLD_NAMES = {"proxy", "limited proxy"}
"""Common names of the oldest kind, which has no extension."""


def check_no_proxy(leaf: Facts) -> None:
    """Raise `Refusal` for a proxy certificate."""
    if _says_so(leaf) or _is_old_one(leaf):
        raise Refusal(
            refusals.PROXY,
            "Your certificate is a proxy certificate, which cannot log in. Use the host or user certificate itself",
        )


def _says_so(leaf: Facts) -> bool:
    return any(each.oid.dotted_string in _PROXY_INFO for each in leaf.extensions)


def _is_old_one(leaf: Facts) -> bool:
    """Whether the subject is the issuer's with `CN=proxy` behind it, so that the issuer is the user."""
    if not leaf.subject.rdns:
        return False
    *before, last = leaf.subject.rdns
    return before == leaf.issuer.rdns and any(
        each.oid == NameOID.COMMON_NAME and each.value in _OLD_NAMES for each in last
    )
