"""All checks together: what is remembered, what is measured, and that nothing a client sends raises anything else."""

import asyncio
import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ams.authn.certificates.checks import CertificateChecks
from ams.authn.certificates.names import subject_of
from ams.authn.certificates.reading import KINDS, quietly
from ams.authn.settings import AuthnSettings
from ams.authn.values import Presented
from ams.core.clock import SystemClock
from ams.core.distinguished_names import of_certificate
from ams.core.errors import CertificateRefused, Unavailable
from ams.outgoing.guard import Guard
from tests.authn.certificates.conftest import BELIEVED, Site, judged
from tests.support.authorities import CLIENT, HOUR, NO_CA, NOW, YEARS, Authority, distribution_points, key_usage
from tests.support.publishing import Publishing


async def test_what_passed_is_remembered_for_a_minute(site: Site) -> None:
    site.has_list(site.root.crl())
    checks = site.checks()
    for _ in range(3):
        assert await judged(checks, site.jane) == BELIEVED
    assert checks.remembered == 2

    site.clock.advance(60_000)
    assert await judged(checks, site.jane) == BELIEVED
    assert checks.remembered == 2


async def test_nothing_is_remembered_beyond_the_end_of_a_certificate_or_its_list(site: Site) -> None:
    seconds = datetime.timedelta(seconds=10)
    site.has_list(site.root.crl(next_update=NOW + 2 * seconds))
    checks = site.checks()
    brief = site.root.signs(not_after=NOW + seconds)
    assert await judged(checks, brief) == BELIEVED
    assert await judged(checks, site.jane) == BELIEVED

    site.clock.advance(11_000)
    assert await judged(checks, site.jane) == BELIEVED
    assert "has expired" in await judged(checks, brief)
    site.clock.advance(10_000)
    assert (await judged(checks, site.jane)).startswith("unable")


async def test_what_passed_is_looked_at_again_when_the_clock_was_put_back(site: Site) -> None:
    site.has_list(site.root.crl(this_update=NOW - YEARS, next_update=NOW + YEARS))
    checks, leaf = site.checks(), site.root.signs(not_before=NOW - HOUR)
    assert await judged(checks, leaf) == BELIEVED

    site.clock.step(-2 * 3_600_000)
    assert "not active yet" in await judged(checks, leaf)


async def test_another_chain_is_another_question(site: Site, publishing: Publishing) -> None:
    publishing.puts("/root.crl", site.root.crl())
    leaf = site.below.signs(crl_urls=[publishing.puts("/below.crl", site.below.crl())])
    checks = site.checks()

    assert await judged(checks, leaf, site.below.certificate) == BELIEVED
    assert (await judged(checks, leaf)).startswith("refused")


async def test_refusals_are_counted_by_kind(site: Site, publishing: Publishing) -> None:
    checks = site.checks()
    for leaf in (Authority.make("Stranger").signs(), site.root.signs(), site.jane):
        assert await judged(checks, leaf) != BELIEVED

    figures = {each.name.removeprefix("ams_authn_"): each.values for each in checks.counters()}
    assert [figures[name][0][1] for name in ("list_fetches", "list_fetch_failures")] == [1, 1]
    refused = {labels["reason"]: count for labels, count in figures["certificates_refused"]}
    assert set(refused) == set(KINDS)
    assert {kind: count for kind, count in refused.items() if count} == {"chain": 1, "no_list": 1, "doubt": 1}


async def test_a_login_does_not_wait_for_ever_and_closing_ends_all(site: Site, publishing: Publishing) -> None:
    publishing.puts("/root.crl", site.root.crl())
    publishing.held.clear()
    checks = site.checks()
    checks._client._seconds = 0.05

    assert "Could not access CRL" in await judged(checks, site.jane)
    publishing.held.set()


AUTHORITY = Authority.make("Test Root")
FULL = AUTHORITY.signs(
    [("C", "GR"), ("O", "Acme"), ("CN", "Jane"), ("E", "a@b.c"), ("DC", "org")],
    extensions=[NO_CA, CLIENT, key_usage("digital_signature"), distribution_points("http://127.0.0.1:1/x.crl")],
    hosts=["a.example.org", "127.0.0.1"],
    ocsp_urls=["http://127.0.0.1:1/ocsp"],
).certificate
BODY = FULL.tbs_certificate_bytes


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a19_changed_bytes_raise_only_refusals(site_of_all: AuthnSettings, changes: list[tuple[int, int]]) -> None:
    body = bytearray(BODY)
    for place, value in changes:
        body[place] = value
    try:
        with quietly():
            odd = AUTHORITY.signs_changed(FULL, BODY, bytes(body))
    except (ValueError, x509.InvalidVersion):
        return  # no certificate for any reader: the session has none then
    for options in (
        site_of_all,
        AuthnSettings(trust_unknown_cas=True),
        AuthnSettings(client_ca=site_of_all.client_ca, revocation="warn"),
    ):
        asyncio.run(_checked(options, odd))


async def _checked(options: AuthnSettings, certificate: x509.Certificate) -> None:
    checks = CertificateChecks(options, Guard(), SystemClock())
    try:
        await checks.check(Presented(certificate, (certificate,)), "127.0.0.1", verify_host=False)
        with quietly():
            of_certificate(subject_of(certificate)).encode()
    except (CertificateRefused, Unavailable):
        pass
    finally:
        await checks.close()


@pytest.fixture(scope="module")
def site_of_all(tmp_path_factory: pytest.TempPathFactory) -> AuthnSettings:
    folder = tmp_path_factory.mktemp("authorities")
    (folder / "ca.pem").write_bytes(AUTHORITY.certificate.public_bytes(Encoding.PEM))
    return AuthnSettings(client_ca=str(folder))
