"""OCSP: asked when there is no list, believed when the CA or one it has charged has signed."""

from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.authn.certificates.conftest import BELIEVED, Site, World, judged
from tests.support.authorities import CLIENT, DAY, NO_CA, NOW, Authority, Credentials, name_of
from tests.support.publishing import Publishing

GOOD, REVOKED, UNKNOWN = ocsp.OCSPCertStatus.GOOD, ocsp.OCSPCertStatus.REVOKED, ocsp.OCSPCertStatus.UNKNOWN
PATH = "/ocsp"


@pytest.fixture
def leaf(world: World, publishing: Publishing) -> Credentials:
    """A certificate with a responder and no list."""
    return world.root.signs(ocsp_urls=[publishing.url(PATH)])


async def test_a11_a_responder_is_asked_once_when_there_is_no_list(
    site: Site, publishing: Publishing, leaf: Credentials
) -> None:
    questions: list[int] = []

    def answer(body: bytes) -> bytes:
        questions.append(ocsp.load_der_ocsp_request(body).serial_number)
        return site.root.ocsp(leaf.certificate)

    publishing.answers(PATH, answer)
    checks = site.checks()
    assert await judged(checks, leaf) == BELIEVED
    site.clock.advance(120_000)
    assert await judged(checks, leaf) == BELIEVED
    assert questions == [leaf.certificate.serial_number]


async def test_a11_it_is_asked_again_after_a_step_back(site: Site, publishing: Publishing, leaf: Credentials) -> None:
    publishing.puts(PATH, site.root.ocsp(leaf.certificate, this_update=NOW - 2 * DAY))
    checks = site.checks()
    assert await judged(checks, leaf) == BELIEVED

    site.clock.step(-24 * 3_600_000)
    assert await judged(checks, leaf) == BELIEVED
    assert publishing.asked[PATH] == 2


async def test_a11_a_list_goes_before_a_responder(site: Site, publishing: Publishing, leaf: Credentials) -> None:
    site.has_list(site.root.crl())
    assert await site.judge(leaf) == BELIEVED
    assert not publishing.asked


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (REVOKED, "Your certificate has been revoked"),
        (UNKNOWN, "Your certificate is not known to the OCSP responder of its CA"),
    ],
)
async def test_a11_a_responder_says_revoked_or_that_it_does_not_know(
    site: Site, publishing: Publishing, leaf: Credentials, status: ocsp.OCSPCertStatus, said: str
) -> None:
    publishing.puts(PATH, site.root.ocsp(leaf.certificate, status))
    assert await site.judge(leaf, revocation="warn") == f"refused: {said}"


async def test_a11_a_responder_of_the_ca_may_answer(site: Site, publishing: Publishing, leaf: Credentials) -> None:
    publishing.puts(PATH, site.root.ocsp(leaf.certificate, responder=site.root.ocsp_responder()))
    assert await site.judge(leaf) == BELIEVED


DOUBTFUL: dict[str, Callable[[World, x509.Certificate], bytes]] = {
    "forged": lambda world, leaf: world.root.ocsp(leaf, responder=Authority.make("Test Root").ocsp_responder()),
    "by one not charged": lambda world, leaf: world.root.ocsp(leaf, responder=world.root.ocsp_responder(purpose=False)),
    "by one charged with something else": lambda world, leaf: world.root.ocsp(
        leaf, responder=world.root.signs("Joe", extensions=[NO_CA, CLIENT])
    ),
    "by one that expired": lambda world, leaf: world.root.ocsp(
        leaf, responder=world.root.ocsp_responder(not_after=NOW - DAY)
    ),
    "old": lambda world, leaf: world.root.ocsp(leaf, this_update=NOW - 3 * DAY, next_update=NOW - DAY),
    "old without an end": lambda world, leaf: world.root.ocsp(leaf, this_update=NOW - 3 * DAY, next_update=None),
    "early": lambda world, leaf: world.root.ocsp(leaf, this_update=NOW + DAY, next_update=NOW + 2 * DAY),
    "of another": lambda world, leaf: world.root.ocsp(world.jane.certificate),
    "unsuccessful": lambda world, leaf: ocsp.OCSPResponseBuilder.build_unsuccessful(
        ocsp.OCSPResponseStatus.TRY_LATER
    ).public_bytes(Encoding.DER),
    "odd": lambda world, leaf: b"odd",
}


@pytest.mark.parametrize("made", DOUBTFUL.values(), ids=DOUBTFUL)
async def test_a11_an_answer_that_is_not_to_be_believed_is_none(
    site: Site,
    publishing: Publishing,
    world: World,
    leaf: Credentials,
    made: Callable[[World, x509.Certificate], bytes],
) -> None:
    url = publishing.puts(PATH, made(world, leaf.certificate))
    assert await site.judge(leaf) == f"unable: Could not access OCSP responder {url}"
    assert await site.judge(leaf, revocation="warn") == BELIEVED


async def test_a11_credentials_in_the_url_of_a_responder_are_not_shown(site: Site, publishing: Publishing) -> None:
    url = publishing.url(PATH)
    leaf = site.root.signs(ocsp_urls=[url.replace("://", "://user:s3cret@")])

    assert await site.judge(leaf) == f"unable: Could not access OCSP responder {url}"
    assert not publishing.asked


async def test_a11_without_ocsp_such_a_certificate_has_nobody_to_be_asked(site: Site, leaf: Credentials) -> None:
    assert "No CRLDistributionPoints found" in await site.judge(leaf, ocsp=False)


async def test_a11_an_answer_signed_with_rsa_is_believed(site: Site, publishing: Publishing, leaf: Credentials) -> None:
    key = rsa.generate_private_key(65537, 2048)
    use = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.OCSP_SIGNING])
    charged = (
        x509.CertificateBuilder(name_of("Test Root"), name_of("Responder"), key.public_key(), 5, NOW - DAY, NOW + DAY)
        .add_extension(use, critical=False)
        .sign(site.root.key, hashes.SHA256())
    )
    publishing.puts(PATH, site.root.ocsp(leaf.certificate, responder=Credentials(charged, key)))

    assert await site.judge(leaf) == BELIEVED
