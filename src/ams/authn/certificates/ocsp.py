"""OCSP responders: a CA asked about one certificate, when it publishes no list (contract 15, A11; RFC 6960)."""

from dataclasses import dataclass

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID

from ams.authn.certificates.crls import EARLY, Doubt
from ams.authn.certificates.reading import Facts, milliseconds, read
from ams.core.cache import LruCache
from ams.core.clock import Clock
from ams.core.errors import Unavailable
from ams.core.urls import without_credentials
from ams.outgoing.client import HttpClient, RequestFailed
from ams.outgoing.sharing import Shared

logger = structlog.get_logger("ams.authn.certificates")

REMEMBERED = 10_000
"""Answers."""
WITHOUT_END = 5 * 60_000
"""Milliseconds that an answer is good for which does not say how long it is."""
_MOST_AGE = 24 * 3_600_000
"""Age of such an answer at most, in milliseconds."""
_TYPE = "application/ocsp-request"


@dataclass(frozen=True, slots=True)
class OcspAnswer:
    """What a responder said."""

    status: ocsp.OCSPCertStatus
    since: int
    """When it was said; milliseconds since the epoch, as the next. The machine's time may be put back before it."""
    until: int


class _NotBelieved(Exception):
    """An answer that cannot be used; the text says why, for a log."""


def responder_urls(certificate: Facts) -> list[str]:
    """Return where a certificate's CA can be asked about it, by http or https."""
    access = certificate.extension(x509.AuthorityInformationAccess)
    return [
        str(each.access_location.value)
        for each in access or ()
        if each.access_method == AuthorityInformationAccessOID.OCSP
        and isinstance(each.access_location, x509.UniformResourceIdentifier)
        and each.access_location.value.lower().startswith(("http://", "https://"))
    ]


def no_answer(url: str) -> Doubt:
    """An OCSP responder that gives no answer, or none to be believed."""
    url = without_credentials(url)
    return Doubt(url, Unavailable(f"Could not access OCSP responder {url}"))


class Responders:
    """Asks responders, and remembers what they said for as long as it is good."""

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._answers: LruCache[tuple[bytes, int], OcspAnswer] = LruCache(REMEMBERED)
        self._going_on: Shared[tuple[bytes, int], OcspAnswer] = Shared()

    async def ask(self, certificate: Facts, issuer: Facts) -> OcspAnswer:
        """Return the answer of one of the certificate's responders; raise `Doubt` when none gives a valid one."""
        key = (issuer.certificate.fingerprint(hashes.SHA256()), certificate.serial)
        answer = self._answers.get(key)
        if answer is not None and answer.since <= self._clock.wall() < answer.until:
            return answer
        answer = await self._going_on.result(key, lambda: self._asked(certificate, issuer))
        self._answers.put(key, answer)
        return answer

    async def close(self) -> None:
        """Stop asking."""
        await self._going_on.close()

    async def _asked(self, certificate: Facts, issuer: Facts) -> OcspAnswer:
        urls = responder_urls(certificate)
        question = ocsp.OCSPRequestBuilder().add_certificate(
            certificate.certificate,
            issuer.certificate,
            hashes.SHA1(),  # noqa: S303  # names the CA, and proves nothing; many responders know no other
        )
        asked = question.build()
        body = asked.public_bytes(Encoding.DER)
        for url in urls:
            try:
                data = await self._client.post(url, body, _TYPE)
                return self._read(data, asked, issuer)
            except (RequestFailed, _NotBelieved) as error:
                logger.warning("ocsp.no_answer", url=without_credentials(url), reason=str(error))
        raise no_answer(urls[0])

    def _read(self, data: bytes, asked: ocsp.OCSPRequest, issuer: Facts) -> OcspAnswer:
        try:
            return _read(data, asked, issuer, self._clock.wall())
        except _NotBelieved:
            raise
        except Exception as error:  # a parser's, of many kinds
            raise _NotBelieved(f"it cannot be read: {error}") from error


def _read(data: bytes, asked: ocsp.OCSPRequest, issuer: Facts, now: int) -> OcspAnswer:
    response = ocsp.load_der_ocsp_response(data)
    if response.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
        raise _NotBelieved(f"it says {response.response_status.name}")
    _check_signed(response, issuer, now)
    for each in response.responses:
        if _is_about(each, asked):
            return OcspAnswer(each.certificate_status, now, _until(each, now))
    raise _NotBelieved("it is about another certificate")


def _is_about(single: ocsp.OCSPSingleResponse, asked: ocsp.OCSPRequest) -> bool:
    return (
        single.serial_number == asked.serial_number
        and single.hash_algorithm.name == asked.hash_algorithm.name
        and single.issuer_key_hash == asked.issuer_key_hash
        and single.issuer_name_hash == asked.issuer_name_hash
    )


def _until(single: ocsp.OCSPSingleResponse, now: int) -> int:
    since = milliseconds(single.this_update_utc)
    if since > now + EARLY:
        raise _NotBelieved("it is of the future")
    if single.next_update_utc is None:
        if since < now - _MOST_AGE:
            raise _NotBelieved("it is out of date")
        return now + WITHOUT_END
    until = milliseconds(single.next_update_utc)
    if until <= now:
        raise _NotBelieved("it is out of date")
    return until


def _check_signed(response: ocsp.OCSPResponse, issuer: Facts, now: int) -> None:
    """Check that the CA, or a responder it has delegated to, has signed an answer (RFC 6960, 4.2.2.2)."""
    if _has_signed(issuer.certificate, response):
        return
    for each in response.certificates:
        if _is_charged(each, issuer, now) and _has_signed(each, response):
            return
    raise _NotBelieved("it is not signed by the CA, nor by one that may answer for it")


def _is_charged(certificate: x509.Certificate, issuer: Facts, now: int) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer.certificate)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    facts = read(certificate)
    usage = facts.extension(x509.ExtendedKeyUsage)
    return (
        usage is not None and ExtendedKeyUsageOID.OCSP_SIGNING in usage and facts.not_before <= now <= facts.not_after
    )


def _has_signed(signer: x509.Certificate, response: ocsp.OCSPResponse) -> bool:
    key, signature, body = signer.public_key(), response.signature, response.tbs_response_bytes
    algorithm = response.signature_hash_algorithm
    try:
        if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
            key.verify(signature, body)
        elif isinstance(key, rsa.RSAPublicKey) and algorithm is not None:
            key.verify(signature, body, padding.PKCS1v15(), algorithm)
        elif isinstance(key, ec.EllipticCurvePublicKey) and algorithm is not None:
            key.verify(signature, body, ec.ECDSA(algorithm))
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return True
