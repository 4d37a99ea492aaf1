"""Revoked certificates: lists from the folder and by URL, OCSP without a list, and the policy without both."""

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ams.authn.certificates.crls import CrlCache, RevocationList
from ams.authn.certificates.revocation import MAX_ANSWER_BYTES, Responders
from ams.core.errors import Unavailable
from ams.outgoing.address_guard import Guard
from ams.outgoing.client import MAX_BODY_BYTES
from tests.authn.certificates.conftest import BELIEVED, REVOKED, Site, World, judge_leaf, present_chain
from tests.support.authorities import (
    CLIENT,
    DAY,
    HOUR,
    NO_CA,
    NOW,
    Authority,
    Credentials,
    Extension,
    distribution_points,
    name_of,
    pem_list,
)
from tests.support.publishing import Publishing

DAY_MS = 24 * 3_600_000
NO_POINTS = "refused: Your certificate is invalid. No CRLDistributionPoints found on the certificate"


def scope(**what: object) -> Extension:
    nothing: dict[str, object] = dict.fromkeys(("full_name", "relative_name", "only_some_reasons"))
    nothing |= dict.fromkeys(
        ("only_contains_user_certs", "only_contains_ca_certs", "indirect_crl", "only_contains_attribute_certs"), False
    )
    return x509.IssuingDistributionPoint(**(nothing | what)), True  # type: ignore[arg-type]


@pytest.mark.parametrize("is_pem", [False, True])
async def test_a10_a_list_in_the_folder_goes_before_any_fetch(site: Site, publishing: Publishing, is_pem: bool) -> None:
    data = site.root.crl([site.jane.certificate])
    site.has_list(pem_list(data) if is_pem else data)

    assert await site.judge(site.jane) == REVOKED
    assert await site.judge(site.root.signs()) == BELIEVED
    (site.folder / "ca.r0").unlink()
    with (site.folder / "ca.pem").open("ab") as file:  # beside certificates
        file.write(pem_list(data))
    assert await site.judge(site.jane) == REVOKED
    assert not publishing.asked


async def test_a10_a_new_list_in_the_folder_counts_at_once_for_those_remembered(site: Site) -> None:
    site.has_list(site.root.crl())
    checks = site.checks()
    assert await judge_leaf(checks, site.jane) == BELIEVED
    assert await judge_leaf(checks, site.jane) == BELIEVED
    assert checks.remembered == 1

    site.has_list(site.root.crl([site.jane.certificate]))
    site.clock.advance(1000)
    assert await judge_leaf(checks, site.jane) == REVOKED


async def test_a10_a_list_is_fetched_before_it_ends_and_replaced_by_newer(site: Site, publishing: Publishing) -> None:
    publishing.puts("/root.crl", site.root.crl([7]))
    checks = site.checks()
    assert await judge_leaf(checks, site.jane) == BELIEVED
    site.clock.advance(2 * 60_000)
    assert await judge_leaf(checks, site.jane) == BELIEVED
    (found,) = checks.lists()
    assert (found.source, len(found._serials)) == (publishing.url("/root.crl"), 1)
    assert next(checks.counters()).values == [({}, 1)]

    withdrawn = site.root.crl([site.jane.certificate], this_update=NOW + 7 * HOUR)
    older = site.root.crl(this_update=NOW - DAY)
    for asked, data in ((2, withdrawn), (3, older)):
        site.clock.advance(7 * 3_600_000)
        publishing.puts("/root.crl", data)
        await checks._fetched.refresh_due()
        assert await judge_leaf(checks, site.jane) == REVOKED
        assert publishing.asked["/root.crl"] == asked


async def test_a10_a_clock_set_back_renews_all_answers(site: Site, publishing: Publishing, leaf: Credentials) -> None:
    """Otherwise a machine that boots with tomorrow's date refuses everybody until tomorrow."""
    checks = site.checks()
    site.clock.step(DAY_MS)
    assert (await judge_leaf(checks, site.jane)).startswith("unable")
    site.clock.step(-DAY_MS)
    publishing.puts("/root.crl", site.root.crl(this_update=NOW - 2 * DAY, next_update=NOW + 2 * DAY))
    assert await judge_leaf(checks, site.jane) == BELIEVED
    publishing.puts(RESPONDER, site.root.ocsp(leaf.certificate, this_update=NOW - 2 * DAY))
    assert await judge_leaf(checks, leaf) == BELIEVED

    site.clock.step(-DAY_MS)
    await checks._fetched.refresh_due()
    assert await judge_leaf(checks, leaf) == BELIEVED
    assert (publishing.asked["/root.crl"], publishing.asked[RESPONDER]) == (3, 2)


async def test_a10_a_clock_that_leaps_ahead_forgets_no_list(site: Site, publishing: Publishing) -> None:
    publishing.puts("/root.crl", site.root.crl())
    checks = site.checks()
    assert await judge_leaf(checks, site.jane) == BELIEVED
    site.clock.step(8 * DAY_MS)
    await checks._fetched.refresh_due()
    site.clock.step(-8 * DAY_MS)

    (found,) = checks.lists()
    assert found.source == publishing.url("/root.crl")


async def test_a10_a_list_of_the_future_takes_no_place(site: Site, publishing: Publishing) -> None:
    """A CA with a wrong clock once: all its later lists seem older."""
    publishing.puts("/root.crl", site.root.crl(this_update=NOW + DAY, next_update=NOW + 9 * DAY))
    checks = site.checks()
    assert "is of no use: it is of the future" in await judge_leaf(checks, site.jane)

    publishing.puts("/root.crl", site.root.crl())
    site.clock.advance(30_000)
    assert await judge_leaf(checks, site.jane) == BELIEVED


async def test_a10_a_restart_keeps_lists_but_no_forged_one(site: Site, publishing: Publishing, tmp_path: Path) -> None:
    folder = tmp_path / "authn-crls"
    publishing.puts("/root.crl", site.root.crl([site.jane.certificate]))
    for _ in range(2):
        assert await site.judge(site.jane, crl_folder=str(folder)) == REVOKED
    assert publishing.asked["/root.crl"] == 1

    [path] = folder.iterdir()
    for data in (b"", path.read_bytes()[:100], site.root.crl(signer=Authority.make("Test Root"))):
        path.write_bytes(data)
        with capture_logs() as lines:
            assert await site.judge(site.jane, crl_folder=str(folder)) == REVOKED
        told = [each for each in lines if each["event"] == "crl.kept_list_unreadable"]
        assert [each["url"] for each in told] == [publishing.url("/root.crl")]
    assert publishing.asked["/root.crl"] == 4


def test_so_many_lists_and_answers_are_kept() -> None:
    assert (CrlCache.max_documents, CrlCache.max_bytes) == (1000, 64 * 2**20)
    assert Responders.max_documents == 10_000


async def test_a10_all_urls_are_tried_and_those_of_ldap_left_out(site: Site, publishing: Publishing) -> None:
    good = publishing.puts("/good.crl", site.root.crl())
    urls = ["ldap://127.0.0.1/cn=ca", publishing.url("/missing.crl"), publishing.puts("/odd.crl", b"odd"), good]
    assert await site.judge(site.root.signs(crl_urls=urls)) == BELIEVED
    assert list(publishing.asked) == ["/missing.crl", "/odd.crl", "/good.crl"]


@pytest.mark.parametrize(("data", "status", "said"), [
    (b"", 404, "Could not access CRL {url}"), (b"http://10.0.0.1/", 302, "Could not access CRL {url}"),
    (b"ftp://127.0.0.1/", 302, "Could not access CRL {url}"), (b"/root.crl", 301, "Could not access CRL {url}"),
    (b"odd", 200, "Unable to parse CRL Data"),
    pytest.param(bytes(MAX_BODY_BYTES + 1), 200, "Unable to read CRL Data", id="too long"),
])  # fmt: skip
async def test_a10_an_absent_list_is_ours(site: Site, publishing: Publishing, data: bytes, status: int, said: str):
    url = publishing.puts("/root.crl", data)
    publishing.statuses["/root.crl"] = status
    assert await site.judge(site.jane) == f"unable: {said.format(url=url)}"
    assert await site.judge(site.jane, revocation="warn") == BELIEVED


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a10_a_moved_list_is_fetched_through_the_guard(site: Site, publishing: Publishing, status: int) -> None:
    publishing.puts("/there.crl", site.root.crl([site.jane.certificate]))
    for place, target in (("/root.crl", "/here.crl"), ("/here.crl", publishing.url("/there.crl"))):
        publishing.puts(place, target.encode())
        publishing.statuses[place] = status

    assert await site.judge(site.jane) == REVOKED
    assert list(publishing.asked) == ["/root.crl", "/here.crl", "/there.crl"]


@pytest.mark.parametrize(("what", "text"), [("crl_urls", "CRL"), ("ocsp_urls", "OCSP responder")])
async def test_a10_credentials_in_the_url_of_a_list_or_responder_are_not_shown(
    site: Site, publishing: Publishing, caplog: pytest.LogCaptureFixture, what: str, text: str
) -> None:
    url = publishing.puts("/status", site.root.crl())
    jane = site.root.signs(**{what: [url.replace("://", "://user:s3cret@")]})

    assert await site.judge(jane) == f"unable: Could not access {text} {url}"
    assert "s3cret" not in caplog.text
    assert not publishing.asked


async def test_failures_are_remembered_for_half_a_minute(site: Site, publishing: Publishing, leaf: Credentials) -> None:
    good = {"/root.crl": site.root.crl(), RESPONDER: site.root.ocsp(leaf.certificate)}
    for shown, path in ((site.jane, "/root.crl"), (leaf, RESPONDER)):
        checks = site.checks()
        for _ in range(2):
            assert (await judge_leaf(checks, shown)).startswith("unable: Could not access")
        assert publishing.asked[path] == 1

        publishing.puts(path, good[path])
        site.clock.advance(30_000)
        assert await judge_leaf(checks, shown) == BELIEVED


async def test_a10_the_guard_keeps_fetches_off_private_addresses(site: Site, publishing: Publishing) -> None:
    publishing.puts("/root.crl", site.root.crl())
    site.guard = Guard()
    assert "Could not access CRL" in await site.judge(site.jane)
    assert not publishing.asked


async def test_a10_a_list_of_another_signer_or_a_barred_ca_is_not_believed(site: Site, publishing: Publishing) -> None:
    forger = Authority.make("Test Root")
    url = publishing.puts("/root.crl", site.root.crl(signer=forger))
    site.has_list(site.root.crl([site.jane.certificate], signer=forger))
    only_certificates = Authority.make("Only certificates", usage=["key_cert_sign"])
    leaf = only_certificates.signs("Jane", crl_urls=[publishing.puts("/only.crl", only_certificates.crl())])
    site.trusts(only_certificates.certificate, name="only.pem")

    assert await site.judge(site.jane) == f"unable: The CRL {url} is not signed by the CA of the certificate"
    assert "is not signed by the CA of the certificate" in await site.judge(leaf)


@pytest.mark.parametrize("extension", [
    (x509.DeltaCRLIndicator(1), True), scope(only_contains_attribute_certs=True),
    scope(only_contains_ca_certs=True), scope(indirect_crl=True),
    scope(only_some_reasons=frozenset([x509.ReasonFlags.key_compromise])),
    scope(full_name=[x509.UniformResourceIdentifier("http://127.0.0.1/other.crl")]),
    (x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"), True),
])  # fmt: skip
async def test_a10_lists_about_others_say_nothing(site: Site, publishing: Publishing, extension: Extension) -> None:
    data = site.root.crl(extensions=[extension])
    publishing.puts("/root.crl", data)
    site.has_list(data)
    assert "is of no use" in await site.judge(site.jane)


@pytest.mark.parametrize("what", ["full_name", "only_contains_user_certs"])
async def test_a10_a_list_for_a_part_counts_for_that_part(site: Site, publishing: Publishing, what: str) -> None:
    value = [x509.UniformResourceIdentifier(publishing.url("/root.crl"))] if what == "full_name" else True
    publishing.puts("/root.crl", site.root.crl([site.jane.certificate], extensions=[scope(**{what: value})]))
    assert await site.judge(site.jane) == REVOKED


async def test_a10_a_list_beyond_its_end_is_replaced_or_a_matter_of_policy(site: Site, publishing: Publishing) -> None:
    stale = site.root.crl([7], this_update=NOW - 2 * DAY, next_update=NOW - DAY)
    site.has_list(stale)
    offline = site.root.signs()

    assert (await site.judge(offline)).endswith("/ca.r0 is out of date")
    assert await site.judge(offline, revocation="warn") == BELIEVED
    assert await site.judge(site.root.signs(serial=7), revocation="warn") == REVOKED

    publishing.puts("/root.crl", stale)
    assert "is out of date" in await site.judge(site.jane)
    publishing.puts("/root.crl", site.root.crl())
    assert await site.judge(site.jane) == BELIEVED


async def test_a10_a_withdrawal_that_was_taken_back_is_none(site: Site) -> None:
    reasons = x509.ReasonFlags
    for reason, judgement in ((reasons.remove_from_crl, BELIEVED), (reasons.certificate_hold, REVOKED)):
        site.has_list(site.root.crl([site.jane.certificate], reason=reason))
        assert await site.judge(site.jane) == judgement


async def test_a10_the_whole_chain_is_looked_at(site: Site, publishing: Publishing) -> None:
    leaf = site.below.signs(crl_urls=[publishing.puts("/below.crl", site.below.crl())])
    publishing.puts("/root.crl", site.root.crl())
    assert await site.judge(leaf, site.below.certificate) == BELIEVED

    publishing.puts("/root.crl", site.root.crl([site.below.certificate]))
    said = await site.judge(leaf, site.below.certificate)
    assert said == "refused: Your certificate is of a CA whose own has been revoked: CN=Test CA"


@pytest.mark.parametrize(("extensions", "said"), [
    ([NO_CA], NO_POINTS), ([NO_CA, distribution_points("ldap://127.0.0.1/cn=ca")], "can be fetched by http or https"),
])  # fmt: skip
async def test_a10_without_any_list_the_policy_decides(site: Site, extensions: list[Extension], said: str) -> None:
    leaf = site.root.signs(extensions=extensions)
    assert said in await site.judge(leaf)
    assert await site.judge(leaf, revocation="warn") == BELIEVED
    assert await site.judge(leaf, verify_certificate=False) == BELIEVED


async def test_a10_in_development_nothing_is_fetched_for_unknown_cas(site: Site, publishing: Publishing) -> None:
    leaf = Authority.make("Stranger").signs(crl_urls=[publishing.url("/root.crl")])
    assert await site.judge(leaf, trust_unknown_cas=True) == BELIEVED
    assert not publishing.asked


USERS = scope(only_contains_user_certs=True)
CRL = Authority.make("Test Root").crl(range(1, 4), reason=x509.ReasonFlags.superseded, extensions=[USERS])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(CRL) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a10_changed_bytes_of_a_list_raise_nothing_unexpected(changes: list[tuple[int, int]]) -> None:
    data = bytearray(CRL)
    for place, value in changes:
        data[place] = value
    try:
        found = RevocationList.read(bytes(data), "odd")
    except ValueError:
        return
    assert isinstance(found.revokes(1), bool)


RESPONDER = "/ocsp"


@pytest.fixture
def leaf(world: World, publishing: Publishing) -> Credentials:
    return world.root.signs(ocsp_urls=[publishing.url(RESPONDER)])


async def test_a11_a_responder_stands_in_for_a_list(site: Site, publishing: Publishing, leaf: Credentials) -> None:
    questions: list[int] = []

    def answer(body: bytes) -> bytes:
        questions.append(ocsp.load_der_ocsp_request(body).serial_number)
        return site.root.ocsp(leaf.certificate)

    publishing.answers(RESPONDER, answer)
    checks = site.checks()
    assert await judge_leaf(checks, leaf) == BELIEVED
    site.clock.advance(120_000)
    assert await judge_leaf(checks, leaf) == BELIEVED
    assert questions == [leaf.certificate.serial_number]


async def test_a11_a_list_goes_before_a_responder(site: Site, publishing: Publishing, leaf: Credentials) -> None:
    assert "No CRLDistributionPoints found" in await site.judge(leaf, ocsp=False)
    site.has_list(site.root.crl())
    assert await site.judge(leaf) == BELIEVED
    assert not publishing.asked


@pytest.mark.parametrize(("status", "said"), [
    (ocsp.OCSPCertStatus.REVOKED, "Your certificate has been revoked"),
    (ocsp.OCSPCertStatus.UNKNOWN, "Your certificate is not known to the OCSP responder of its CA"),
])  # fmt: skip
async def test_a11_a_responder_says_revoked_or_that_it_does_not_know(
    site: Site, publishing: Publishing, leaf: Credentials, status: ocsp.OCSPCertStatus, said: str
) -> None:
    publishing.puts(RESPONDER, site.root.ocsp(leaf.certificate, status))
    assert await site.judge(leaf, revocation="warn") == f"refused: {said}"


def rsa_responder(site: Site) -> Credentials:
    key = rsa.generate_private_key(65537, 2048)
    charged = (
        x509.CertificateBuilder(name_of("Test Root"), name_of("Responder"), key.public_key(), 5, NOW - DAY, NOW + DAY)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.OCSP_SIGNING]), critical=False)
        .sign(site.root.key, hashes.SHA256())
    )
    return Credentials(charged, key)


async def test_a11_a_responder_of_the_ca_may_answer(site: Site, publishing: Publishing, leaf: Credentials) -> None:
    for responder in (site.root.ocsp_responder(), rsa_responder(site)):
        publishing.puts(RESPONDER, site.root.ocsp(leaf.certificate, responder=responder))
        assert await site.judge(leaf) == BELIEVED


DOUBTFUL: dict[str, Callable[[Authority, x509.Certificate], bytes]] = {
    "forged": lambda ca, leaf: ca.ocsp(leaf, responder=Authority.make("Test Root").ocsp_responder()),
    "by one not charged": lambda ca, leaf: ca.ocsp(leaf, responder=ca.ocsp_responder(purpose=False)),
    "for clients": lambda ca, leaf: ca.ocsp(leaf, responder=ca.signs("Joe", extensions=[NO_CA, CLIENT])),
    "by one that expired": lambda ca, leaf: ca.ocsp(leaf, responder=ca.ocsp_responder(not_after=NOW - DAY)),
    "old": lambda ca, leaf: ca.ocsp(leaf, this_update=NOW - 3 * DAY, next_update=NOW - DAY),
    "old without an end": lambda ca, leaf: ca.ocsp(leaf, this_update=NOW - 3 * DAY, next_update=None),
    "early": lambda ca, leaf: ca.ocsp(leaf, this_update=NOW + DAY, next_update=NOW + 2 * DAY),
    "of another": lambda ca, leaf: ca.ocsp(ca.signs("Joe").certificate),
    "unsuccessful": lambda ca, leaf: UNSUCCESSFUL.public_bytes(Encoding.DER),
    "odd": lambda ca, leaf: b"odd",
}
UNSUCCESSFUL = ocsp.OCSPResponseBuilder.build_unsuccessful(ocsp.OCSPResponseStatus.TRY_LATER)


@pytest.mark.parametrize("what", DOUBTFUL)
async def test_a11_a_bad_answer_is_no_answer(site: Site, publishing: Publishing, leaf: Credentials, what: str) -> None:
    url = publishing.puts(RESPONDER, DOUBTFUL[what](site.root, leaf.certificate))
    assert await site.judge(leaf) == f"unable: Could not access OCSP responder {url}"
    assert await site.judge(leaf, revocation="warn") == BELIEVED


async def test_a10_a_list_stays_with_its_host_away_and_the_clock_set_back(site: Site, publishing: Publishing) -> None:
    publishing.puts("/root.crl", site.root.crl())
    checks = site.checks()
    assert await judge_leaf(checks, site.jane) == BELIEVED
    publishing.statuses["/root.crl"] = 503
    site.clock.step(-2_000)
    assert await judge_leaf(checks, site.root.signs(crl_urls=[publishing.url("/root.crl")])) == BELIEVED
    asked = publishing.asked["/root.crl"]
    for _ in range(3):  # no login waits for the host again
        site.clock.advance(60_000)
        assert await judge_leaf(checks, site.root.signs(crl_urls=[publishing.url("/root.crl")])) == BELIEVED
    assert publishing.asked["/root.crl"] == asked


async def test_a10_a_list_beside_certificates_is_found(site: Site, publishing: Publishing) -> None:
    crl = pem_list(site.root.crl([site.jane.certificate]))
    publishing.puts("/root.crl", site.root.certificate.public_bytes(Encoding.PEM) + crl)
    assert await site.judge(site.jane) == REVOKED


async def test_a11_a_long_answer_is_not_looked_at(site: Site, publishing: Publishing, leaf: Credentials) -> None:
    publishing.puts(RESPONDER, b"\x05\0" * MAX_ANSWER_BYTES)
    with capture_logs() as logs:
        assert (await site.judge(leaf)).startswith("unable")
    assert [each["reason"] for each in logs if each["event"] == "ocsp.no_answer"] == ["it is too long"]


async def test_a10_refusals_for_one_doubt_keep_nothing_of_their_requests(site: Site, publishing: Publishing) -> None:
    checks, traces = site.checks(), []
    for _ in range(3):
        with pytest.raises(Unavailable) as refused:
            await checks.check(present_chain(site.jane), "127.0.0.1", verify_host=False)
        traces.append(len(list(traceback.walk_tb(refused.value.__traceback__))))
    assert len(set(traces)) == 1
