"""OCSP: asked when there is no list, believed when the CA or one it has charged has signed."""

from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID

from ams.core.errors import CertificateRefused, Unavailable
from tests.authn.certificates.conftest import Site, World, presented
from tests.support.authorities import CLIENT, DAY, NO_CA, NOW, Authority, Credentials, name_of
from tests.support.publishing import Publishing

GOOD, REVOKED, UNKNOWN = ocsp.OCSPCertStatus.GOOD, ocsp.OCSPCertStatus.REVOKED, ocsp.OCSPCertStatus.UNKNOWN
PATH = "/ocsp"


@pytest.fixture
def leaf(world: World, publishing: Publishing) -> Credentials:
    """A certificate with a responder and no list."""
    return world.root.signs(ocsp_urls=[publishing.url(PATH)])


async def test_a11_a_responder_is_asked_once_when_there_is_no_list(
    site: Site, world: World, publishing: Publishing, leaf: Credentials
) -> None:
    questions: list[int] = []

    def answer(body: bytes) -> bytes:
        questions.append(ocsp.load_der_ocsp_request(body).serial_number)
        return world.root.ocsp(leaf.certificate)

    publishing.answers(PATH, answer)
    checks = site.checks()
    await checks.check(presented(leaf), "127.0.0.1", verify_host=False)
    site.clock.advance(120_000)
    await checks.check(presented(leaf), "127.0.0.1", verify_host=False)
    assert questions == [leaf.certificate.serial_number]


async def test_a11_a_list_goes_before_a_responder(
    site: Site, world: World, publishing: Publishing, leaf: Credentials
) -> None:
    site.has_list(world.root.crl())

    await site.check(leaf)
    assert not publishing.asked


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (REVOKED, "Your certificate has been revoked"),
        (UNKNOWN, "Your certificate is not known to the OCSP responder of its CA"),
    ],
)
async def test_a11_a_responder_says_revoked_or_that_it_does_not_know(
    site: Site, world: World, publishing: Publishing, leaf: Credentials, status: ocsp.OCSPCertStatus, said: str
) -> None:
    publishing.puts(PATH, world.root.ocsp(leaf.certificate, status))

    with pytest.raises(CertificateRefused, match=f"^{said}$"):
        await site.check(leaf, revocation="warn")


async def test_a11_one_whom_the_ca_has_charged_may_answer(
    site: Site, world: World, publishing: Publishing, leaf: Credentials
) -> None:
    publishing.puts(PATH, world.root.ocsp(leaf.certificate, responder=world.root.ocsp_responder()))

    await site.check(leaf)


def forged(world: World, leaf: Credentials) -> bytes:
    return world.root.ocsp(leaf.certificate, responder=Authority.make("Test Root").ocsp_responder())


def not_charged(world: World, leaf: Credentials) -> bytes:
    return world.root.ocsp(leaf.certificate, responder=world.root.ocsp_responder(purpose=False))


def charged_with_something_else(world: World, leaf: Credentials) -> bytes:
    return world.root.ocsp(leaf.certificate, responder=world.root.signs("Joe", extensions=[NO_CA, CLIENT]))


def expired(world: World, leaf: Credentials) -> bytes:
    return world.root.ocsp(leaf.certificate, responder=world.root.ocsp_responder(not_after=NOW - DAY))


def old(world: World, leaf: Credentials) -> bytes:
    return world.root.ocsp(leaf.certificate, this_update=NOW - 3 * DAY, next_update=NOW - DAY)


def old_without_end(world: World, leaf: Credentials) -> bytes:
    return world.root.ocsp(leaf.certificate, this_update=NOW - 3 * DAY, next_update=None)


def early(world: World, leaf: Credentials) -> bytes:
    return world.root.ocsp(leaf.certificate, this_update=NOW + DAY, next_update=NOW + 2 * DAY)


def of_another(world: World, leaf: Credentials) -> bytes:
    return world.root.ocsp(world.jane.certificate)


def unsuccessful(world: World, leaf: Credentials) -> bytes:
    status = ocsp.OCSPResponseStatus.TRY_LATER
    return ocsp.OCSPResponseBuilder.build_unsuccessful(status).public_bytes(Encoding.DER)


def odd(world: World, leaf: Credentials) -> bytes:
    return b"odd"


@pytest.mark.parametrize(
    "made",
    [
        forged,
        not_charged,
        charged_with_something_else,
        expired,
        old,
        old_without_end,
        early,
        of_another,
        unsuccessful,
        odd,
    ],
)
async def test_a11_an_answer_that_is_not_to_be_believed_is_none(
    site: Site, world: World, publishing: Publishing, leaf: Credentials, made: Callable[[World, Credentials], bytes]
) -> None:
    url = publishing.puts(PATH, made(world, leaf))

    with pytest.raises(Unavailable) as caught:
        await site.check(leaf)
    assert caught.value.message == f"Could not access OCSP responder {url}"
    await site.check(leaf, revocation="warn")


async def test_a11_without_ocsp_such_a_certificate_has_nobody_to_be_asked(site: Site, leaf: Credentials) -> None:
    with pytest.raises(CertificateRefused, match="No CRLDistributionPoints found"):
        await site.check(leaf, ocsp=False)


async def test_a11_an_answer_signed_with_rsa_is_believed(
    site: Site, world: World, publishing: Publishing, leaf: Credentials
) -> None:
    key = rsa.generate_private_key(65537, 2048)
    use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.OCSP_SIGNING])
    charged = (
        x509.CertificateBuilder(name_of("Test Root"), name_of("Responder"), key.public_key(), 5, NOW - DAY, NOW + DAY)
        .add_extension(use, critical=False)
        .sign(world.root.key, hashes.SHA256())
    )
    publishing.puts(PATH, world.root.ocsp(leaf.certificate, responder=Credentials(charged, key)))

    await site.check(leaf)
