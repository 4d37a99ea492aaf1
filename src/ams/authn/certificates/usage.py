"""Usage: what a certificate may be used for. One that says so must be for clients, and none may be a CA's."""

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from ams.authn.certificates import refusals
from ams.authn.certificates.reading import Facts
from ams.authn.certificates.refusals import Refusal

_FOR_CLIENTS = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}


def check_usage(leaf: Facts) -> None:
    """Raise `Refusal` for a certificate that is not for clients (contract 9.1)."""
    if leaf.is_ca:
        raise Refusal(refusals.USAGE, "Your certificate is one of a CA, which cannot log in")
    extended = leaf.extension(x509.ExtendedKeyUsage)
    if extended is not None and not _FOR_CLIENTS.intersection(extended):
        raise Refusal(refusals.USAGE, "Your certificate is not for clients: its extended key usage does not say so")
    usage = leaf.extension(x509.KeyUsage)
    if usage is not None and not (usage.digital_signature or usage.key_agreement):
        raise Refusal(refusals.USAGE, "Your certificate is not for clients: its key usage allows no signature")
