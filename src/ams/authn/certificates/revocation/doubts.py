"""Doubts: why nobody can say whether a certificate was withdrawn. What follows from one is a matter of policy.

The contract's `Internal Error: ` is put before their texts where errors are written (`ams.authn.http.errors`).
"""

from ams.authn.certificates import refusals
from ams.authn.certificates.refusals import Refusal
from ams.core.errors import AmsError, Unavailable

NO_POINTS = "Your certificate is invalid. No CRLDistributionPoints found on the certificate"


class Doubt(Exception):
    """It is not known; `error` is what the client hears if that is reason enough to refuse it."""

    def __init__(self, source: str, error: AmsError) -> None:
        super().__init__(error.message)
        self.source = source
        """Path or URL; the certificate's subject if it names none."""
        self.error = error


def unreachable(url: str) -> Doubt:
    """A list that cannot be fetched (contract 9.3); `Internal Error: ` is put before it on the wire, as before all."""
    return Doubt(url, Unavailable(f"Could not access CRL {url}"))


def unparsable(url: str) -> Doubt:
    """What was fetched is no list (contract 9.3)."""
    return Doubt(url, Unavailable("Unable to parse CRL Data"))


def too_long(url: str) -> Doubt:
    """A list that is longer than any (contract 9.3)."""
    return Doubt(url, Unavailable("Unable to read CRL Data"))


def outdated(source: str) -> Doubt:
    """A list that should have been replaced by another."""
    return Doubt(source, Unavailable(f"The CRL {source} is out of date"))


def foreign(source: str) -> Doubt:
    """A list that another than the certificate's CA has signed."""
    return Doubt(source, Unavailable(f"The CRL {source} is not signed by the CA of the certificate"))


def beside(source: str, why: str) -> Doubt:
    """A list of the right CA that is not about this certificate."""
    return Doubt(source, Unavailable(f"The CRL {source} is of no use: {why}"))


def silent(url: str) -> Doubt:
    """An OCSP responder that gives no answer, or none to be believed."""
    return Doubt(url, Unavailable(f"Could not access OCSP responder {url}"))


def nowhere(subject: str, *, has_points: bool) -> Doubt:
    """A certificate that names nobody who could be asked (contract 9.3)."""
    text = NO_POINTS
    if has_points:
        text = "Your certificate is invalid. None of its CRLDistributionPoints can be fetched by http or https"
    return Doubt(subject, Refusal(refusals.NO_LIST, text))


def nowhere_for_ca(subject: str) -> Doubt:
    """A CA between the certificate and one that is trusted, without a list of its own CA's."""
    return Doubt(
        subject, Refusal(refusals.NO_LIST, f"Your certificate is invalid. No CRL is known for its CA {subject}")
    )
