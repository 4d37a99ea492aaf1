"""Chains: from a certificate to an authority that is trusted, found and verified by OpenSSL."""

import datetime
from collections.abc import Sequence

from cryptography import x509
from OpenSSL import crypto

from ams.authn.certificates import refusals
from ams.authn.certificates.reading import Facts, quietly, read
from ams.authn.certificates.refusals import Refusal
from ams.authn.certificates.trust import Trust
from ams.core.clock import Milliseconds

MOST_PRESENTED = 16
"""Certificates of those a client sends beside its own that are looked at."""

_NO_ISSUER = {2, 19, 20, 21}
"""OpenSSL's codes of a chain that leads nowhere, or to a stranger who signs itself."""
_UNTRUSTED = "Your certificate is not of a CA that is trusted here"
_TEXTS = {
    2: _UNTRUSTED,
    7: "Your certificate is not signed by the CA it names",
    9: "Your certificate is not active yet",
    10: "Your certificate has expired",
    18: "Your certificate is self-signed, and not trusted here",
    19: _UNTRUSTED,
    20: _UNTRUSTED,
    21: _UNTRUSTED,
    24: "Your certificate is signed by one that is no CA",
    25: "Your certificate is of a CA below one that allows no such CA",
    34: "Your certificate has a critical extension that is not understood here",
    47: "Your certificate has a name that its CA may not sign",
    48: "Your certificate has a name that its CA may not sign",
    79: "Your certificate is signed by one that is no CA",
}
"""What is said of OpenSSL's codes."""
_NOT_YET, _EXPIRED = 9, 10


def check_dates(leaf: Facts, now: Milliseconds) -> None:
    """Raise `Refusal` outside of a certificate's time, in the contract's order (9.2)."""
    if now > leaf.not_after + 999:  # its last second is whole
        raise Refusal(refusals.EXPIRED, "Your certificate has expired")
    if now < leaf.not_before:
        raise Refusal(refusals.NOT_YET, "Your certificate is not active yet")


def verified_chain(leaf: Facts, others: Sequence[x509.Certificate], trust: Trust, now: Milliseconds) -> list[Facts]:
    """Return the certificates from a leaf to an authority that is trusted; raise `Refusal` when there are none.

    A chain ends with one who signs itself if it can, else with a certificate of the folder, as in contract 9.1.
    """
    try:
        certificate = crypto.X509.from_cryptography(leaf.certificate)
    except crypto.Error as error:
        raise Refusal(refusals.UNREADABLE, "Your certificate cannot be read") from error
    presented = _readable(others[:MOST_PRESENTED])
    try:
        found = _built(_store(trust, now), certificate, presented)
    except crypto.X509StoreContextError as error:
        if error.errors[0] not in _NO_ISSUER:
            raise _refusal(error) from error
        try:
            found = _built(_store(trust, now, crypto.X509StoreFlags.PARTIAL_CHAIN), certificate, presented)
        except crypto.X509StoreContextError as other:
            raise _refusal(other) from other
    return [leaf, *(read(each.to_cryptography()) for each in found[1:])]


def _readable(others: Sequence[x509.Certificate]) -> list[crypto.X509]:
    found = []
    for each in others:
        try:
            found.append(crypto.X509.from_cryptography(each))
        except crypto.Error:  # of no use for a chain
            continue
    return found


def _store(trust: Trust, now: Milliseconds, flags: int = 0) -> crypto.X509Store:
    """Return a store for one verification at one time, about half a microsecond for each authority.

    A store keeps the first time it is given, whatever is set later (`X509_STORE_set1_param` overwrites nothing), and
    pyOpenSSL cannot set the time of a store's context.
    """
    store = crypto.X509Store()
    for each in trust.anchors:
        store.add_cert(each)
    if flags:
        store.set_flags(flags)
    store.set_time(datetime.datetime.fromtimestamp(now // 1000, datetime.UTC))
    return store


def _built(store: crypto.X509Store, leaf: crypto.X509, others: Sequence[crypto.X509]) -> Sequence[crypto.X509]:
    return crypto.X509StoreContext(store, leaf, others).get_verified_chain()


def _refusal(error: crypto.X509StoreContextError) -> Refusal:
    code, depth, said = error.errors
    if depth > 0 and code in (_EXPIRED, _NOT_YET):
        state = "has expired" if code == _EXPIRED else "is not active yet"
        return Refusal(refusals.CHAIN, f"Your certificate is of a CA whose own {state}: {_subject(error.certificate)}")
    return Refusal(refusals.CHAIN, _TEXTS.get(code, f"Your certificate cannot be verified: {said}"))


def _subject(certificate: crypto.X509) -> str:
    try:
        with quietly():
            return certificate.to_cryptography().subject.rfc4514_string()
    except ValueError:
        return "a name that cannot be read"
