"""Chains: from a certificate to an authority that is trusted, and what a certificate must be to log in by it.

Chains are found and verified by OpenSSL. It does not look at how certificates are signed, nor how long their keys are:
it leaves that to the handshake, which takes any certificate. Certificates below an authority are looked at here. What
is in the folder is believed for being there, however it is signed.

A certificate that says what it may be used for must be for clients, and none may be a CA's. Proxy certificates, which
users of grids sign for themselves for jobs, log in nowhere: who gets hold of one has it without a password, and none of
the lists of withdrawn certificates knows them.
"""

import datetime
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import crypto

from ams.authn.certificates.names import subject_of
from ams.authn.certificates.reading import Facts, Refusal, quietly, read
from ams.authn.certificates.trust import Trust
from ams.authn.values import UNREADABLE
from ams.core.clock import Milliseconds

MOST_PRESENTED = 16
"""Most certificates beside its own that are used of those a client sends."""

_NO_ISSUER = {2, 19, 20, 21}
"""OpenSSL's codes of an incomplete chain, or of one that ends in an unknown self-signed certificate."""
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

_FORGEABLE = {"md5", "sha1"}
_LEAST_BITS = 2048
_LEAST_BITS_OF_CURVES = 224

_FOR_CLIENTS = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}

_PROXY_INFO = {
    "1.3.6.1.5.5.7.1.14",  # RFC 3820
    "1.3.6.1.4.1.3536.1.222",  # Globus, older than the RFC
}
_OLD_NAMES = {"proxy", "limited proxy"}
"""Common names of the oldest kind, which has no extension."""


def check_dates(leaf: Facts, now: Milliseconds) -> None:
    """Raise `Refusal` outside of a certificate's time, in the contract's order (9.2)."""
    if now > leaf.not_after + 999:  # its last second is whole
        raise Refusal("expired", "Your certificate has expired")
    if now < leaf.not_before:
        raise Refusal("not_yet_valid", "Your certificate is not active yet")


def verified_chain(leaf: Facts, others: Sequence[x509.Certificate], trust: Trust, now: Milliseconds) -> list[Facts]:
    """Return the certificates from a leaf to an authority that is trusted; raise `Refusal` when there are none.

    A chain ends with one who signs itself if it can, else with a certificate of the folder, as in contract 9.1.
    """
    try:
        certificate = crypto.X509.from_cryptography(leaf.certificate)
    except crypto.Error as error:
        raise Refusal("unreadable", UNREADABLE) from error
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
        return Refusal("chain", f"Your certificate is of a CA whose own {state}: {_subject(error.certificate)}")
    return Refusal("chain", _TEXTS.get(code, f"Your certificate cannot be verified: {said}"))


def _subject(certificate: crypto.X509) -> str:
    try:
        with quietly():
            return subject_of(certificate.to_cryptography()).rfc4514_string()
    except ValueError:
        return "a name that cannot be read"


def check_strength(chain: Sequence[Facts]) -> None:
    """Raise `Refusal` when a certificate of a chain, its authority apart, could have been forged."""
    for depth, each in enumerate(chain[:-1]):
        weakness = _weakness(each.certificate)
        if weakness and depth:
            text = f"Your certificate is of a CA whose own has {weakness.partition(':')[0]}: "
            raise Refusal("chain", text + each.subject.rfc4514_string())
        if weakness:
            raise Refusal("chain", f"Your certificate has {weakness}")


def _weakness(certificate: x509.Certificate) -> str:
    """Return what is weak about a certificate; empty: nothing."""
    try:
        algorithm, key = certificate.signature_hash_algorithm, certificate.public_key()
    except (UnsupportedAlgorithm, ValueError):
        return "a key or a signature that cannot be read"
    if algorithm is not None and algorithm.name in _FORGEABLE:
        return f"a signature that is too weak: {algorithm.name}"
    if isinstance(key, rsa.RSAPublicKey | dsa.DSAPublicKey) and key.key_size < _LEAST_BITS:
        return "a key that is too short"
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.key_size < _LEAST_BITS_OF_CURVES:
        return "a key that is too short"
    return ""


def check_usage(chain: Sequence[Facts]) -> None:
    """Raise `Refusal` for a certificate that is not for clients, or is of a CA that is not (contract 9.1)."""
    leaf = chain[0]
    if leaf.is_ca:
        raise Refusal("usage", "Your certificate is one of a CA, which cannot log in")
    if not _is_for_clients(leaf):
        raise Refusal("usage", "Your certificate is not for clients: its extended key usage does not say so")
    usage = leaf.extension(x509.KeyUsage)
    if usage is not None and not (usage.digital_signature or usage.key_agreement):
        raise Refusal("usage", "Your certificate is not for clients: its key usage allows no signature")
    stranger = next((each for each in chain[1:] if not _is_for_clients(each)), None)
    if stranger is not None:
        text = f"Your certificate is of a CA that is not for clients: {stranger.subject.rfc4514_string()}"
        raise Refusal("usage", text)


def _is_for_clients(certificate: Facts) -> bool:
    extended = certificate.extension(x509.ExtendedKeyUsage)
    return extended is None or not _FOR_CLIENTS.isdisjoint(extended)


def check_no_proxy(leaf: Facts) -> None:
    """Raise `Refusal` for a proxy certificate."""
    if _says_so(leaf) or _is_old_one(leaf):
        raise Refusal(
            "proxy",
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
