"""Strength: how certificates below an authority must be signed, and how long their keys must be.

OpenSSL looks at neither here: it leaves that to the handshake, which takes any certificate. What is in the folder is
believed for being there, however it is signed.
"""

from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa

from ams.authn.certificates import refusals
from ams.authn.certificates.reading import Facts
from ams.authn.certificates.refusals import Refusal

_FORGEABLE = {"md5", "sha1"}
_LEAST_BITS = 2048
_LEAST_BITS_OF_CURVES = 224


def check_strength(chain: Sequence[Facts]) -> None:
    """Raise `Refusal` when a certificate of a chain, its authority apart, could have been made by somebody else."""
    for depth, each in enumerate(chain[:-1]):
        weakness = _weakness(each.certificate)
        if weakness and depth:
            text = f"Your certificate is of a CA whose own has {weakness.partition(':')[0]}: "
            raise Refusal(refusals.CHAIN, text + each.subject.rfc4514_string())
        if weakness:
            raise Refusal(refusals.CHAIN, f"Your certificate has {weakness}")


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
