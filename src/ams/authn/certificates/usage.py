"""Usage: what a certificate may be used for. One that says so must be for clients, and none may be a CA's."""

from collections.abc import Sequence

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from ams.authn.certificates import refusals
from ams.authn.certificates.reading import Facts
from ams.authn.certificates.refusals import Refusal

_FOR_CLIENTS = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}


def check_usage(chain: Sequence[Facts]) -> None:
    """Raise `Refusal` for a certificate that is not for clients, or is of a CA that is not (contract 9.1)."""
    leaf = chain[0]
    if leaf.is_ca:
        raise Refusal(refusals.USAGE, "Your certificate is one of a CA, which cannot log in")
    if not _is_for_clients(leaf):
        raise Refusal(refusals.USAGE, "Your certificate is not for clients: its extended key usage does not say so")
    usage = leaf.extension(x509.KeyUsage)
    if usage is not None and not (usage.digital_signature or usage.key_agreement):
        raise Refusal(refusals.USAGE, "Your certificate is not for clients: its key usage allows no signature")
    stranger = next((each for each in chain[1:] if not _is_for_clients(each)), None)
    if stranger is not None:
        text = f"Your certificate is of a CA that is not for clients: {stranger.subject.rfc4514_string()}"
        raise Refusal(refusals.USAGE, text)


def _is_for_clients(certificate: Facts) -> bool:
    extended = certificate.extension(x509.ExtendedKeyUsage)
    return extended is None or not _FOR_CLIENTS.isdisjoint(extended)
