"""All checks together: the folder of authorities, host names, the cache; invalid bytes raise refusals."""

import asyncio
import datetime
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ams.authn.certificates.certificate import KINDS, ignore_warnings, read_certificate, subject_of
from ams.authn.certificates.validation import MAX_LOOKUP_THREADS, CertificateChecks, HostCheck
from ams.authn.settings import AuthnSettings
from ams.core.clock import SystemClock
from ams.core.distinguished_names import of_certificate
from ams.core.errors import CertificateRefused, Unavailable
from ams.outgoing.address_guard import Guard
from tests.authn.certificates.conftest import BELIEVED, Site, World, judge_leaf, present_chain
from tests.support.authorities import (
    CLIENT,
    HOUR,
    NO_CA,
    NOW,
    YEARS,
    Authority,
    Subject,
    distribution_points,
    key_usage,
)
from tests.support.publishing import Publishing


async def test_what_passed_is_remembered_for_a_minute(site: Site) -> None:
    site.has_list(site.root.crl())
    checks = site.checks()
    for _ in range(3):
        assert await judge_leaf(checks, site.jane) == BELIEVED
    assert checks.remembered == 2

    site.clock.advance(60_000)
    assert await judge_leaf(checks, site.jane) == BELIEVED
    assert checks.remembered == 2


async def test_nothing_is_remembered_beyond_the_end_of_a_certificate_or_its_list(site: Site) -> None:
    seconds = datetime.timedelta(seconds=10)
    site.has_list(site.root.crl(next_update=NOW + 2 * seconds))
    checks = site.checks()
    brief = site.root.signs(not_after=NOW + seconds)
    assert await judge_leaf(checks, brief) == BELIEVED
    assert await judge_leaf(checks, site.jane) == BELIEVED

    site.clock.advance(11_000)
    assert await judge_leaf(checks, site.jane) == BELIEVED
    assert "has expired" in await judge_leaf(checks, brief)
    site.clock.advance(10_000)
    assert (await judge_leaf(checks, site.jane)).startswith("unable")


async def test_what_passed_is_looked_at_again_when_the_clock_was_put_back(site: Site) -> None:
    site.has_list(site.root.crl(this_update=NOW - YEARS, next_update=NOW + YEARS))
    checks, leaf = site.checks(), site.root.signs(not_before=NOW - HOUR)
    assert await judge_leaf(checks, leaf) == BELIEVED

    site.clock.step(-2 * 3_600_000)
    assert "not active yet" in await judge_leaf(checks, leaf)


async def test_another_chain_is_another_question(site: Site, publishing: Publishing) -> None:
    publishing.puts("/root.crl", site.root.crl())
    leaf = site.below.signs(crl_urls=[publishing.puts("/below.crl", site.below.crl())])
    checks = site.checks()

    assert await judge_leaf(checks, leaf, site.below.certificate) == BELIEVED
    assert (await judge_leaf(checks, leaf)).startswith("refused")


async def test_refusals_are_counted_by_kind(site: Site, publishing: Publishing) -> None:
    checks = site.checks()
    for leaf in (Authority.make("Stranger").signs(), site.root.signs(), site.jane):
        assert await judge_leaf(checks, leaf) != BELIEVED

    figures = {each.name.removeprefix("ams_authn_"): each.values for each in checks.counters()}
    assert [figures[name][0][1] for name in ("list_fetches", "list_fetch_failures")] == [1, 1]
    refused = {labels["reason"]: count for labels, count in figures["certificates_refused"]}
    assert set(refused) == set(KINDS)
    assert {kind: count for kind, count in refused.items() if count} == {"chain": 1, "no_list": 1, "doubt": 1}


AUTHORITY = Authority.make("Test Root")
FULL = AUTHORITY.signs(
    [("C", "GR"), ("O", "Acme"), ("CN", "Jane"), ("E", "a@b.c"), ("DC", "org")],
    extensions=[NO_CA, CLIENT, key_usage("digital_signature"), distribution_points("http://127.0.0.1:1/x.crl")],
    hosts=["a.example.org", "127.0.0.1"], ocsp_urls=["http://127.0.0.1:1/ocsp"],
).certificate  # fmt: skip
BODY = FULL.tbs_certificate_bytes


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(st.integers(0, len(BODY) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a19_changed_bytes_raise_only_refusals(site_of_all: AuthnSettings, changes: list[tuple[int, int]]) -> None:
    body = bytearray(BODY)
    for place, value in changes:
        body[place] = value
    try:
        with ignore_warnings():
            odd = AUTHORITY.signs_changed(FULL, BODY, bytes(body))
    except (ValueError, x509.InvalidVersion):
        return  # unreadable to every library: the session has no certificate
    for options in (site_of_all, AuthnSettings(trust_unknown_cas=True),
                    AuthnSettings(client_ca=site_of_all.client_ca, revocation="warn")):  # fmt: skip
        asyncio.run(_check_certificate(options, odd))


async def _check_certificate(options: AuthnSettings, certificate: x509.Certificate) -> None:
    checks = CertificateChecks(options, Guard(), SystemClock())
    try:
        await checks.check(present_chain(certificate, certificate), "127.0.0.1", verify_host=False)
        with ignore_warnings():
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


@pytest.mark.parametrize("name", ["ca.pem", "ca.crt", "1a2b3c4d.0", "1a2b3c4d.1"])
async def test_certificates_are_read_under_each_name_they_have(site: Site, name: str) -> None:
    os.unlink(site.folder / "ca.pem")
    site.trusts(site.root.certificate, name=name)
    assert await site.judge(site.jane, verify_certificate=False) == BELIEVED


async def test_links_and_der_are_read_and_other_files_are_not(site: Site, tmp_path: Path) -> None:
    other = Authority.make("Other")
    os.rename(site.folder / "ca.pem", site.folder / "ca.info")
    (site.folder / "other.crt").write_bytes(other.certificate.public_bytes(Encoding.DER))
    os.symlink("other.crt", site.folder / "12345678.0")
    os.symlink("nowhere", site.folder / "12345679.0")
    (site.folder / "folder.pem").mkdir()

    assert await site.judge(other.signs(), verify_certificate=False) == BELIEVED
    assert next(site.checks().gauges()).values == [({}, 1)]
    assert (await site.judge(site.jane, verify_certificate=False)).startswith("refused")


async def test_what_is_broken_is_left_out_and_the_rest_counts(site: Site) -> None:
    good = (site.folder / "ca.pem").read_bytes()
    (site.folder / "a.pem").write_bytes(b"garbage")
    (site.folder / "b.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + good)
    (site.folder / "c.r0").write_bytes(b"garbage")
    version_3, version_8 = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07"
    (site.folder / "d.crt").write_bytes(site.root.signs_bytes(site.root.certificate, version_3, version_8))
    os.unlink(site.folder / "ca.pem")

    assert await site.judge(site.jane, verify_certificate=False) == BELIEVED


async def test_a_folder_that_is_not_there_trusts_nobody(site: Site) -> None:
    os.rename(site.folder, site.folder.with_name("elsewhere"))
    assert (await site.judge(site.jane, verify_certificate=False)).startswith("refused")


async def test_changes_of_the_folder_are_seen_within_a_second(site: Site) -> None:
    other = Authority.make("Other")
    leaf = other.signs()
    checks = site.checks(verify_certificate=False)
    assert (await judge_leaf(checks, leaf)).startswith("refused")

    site.trusts(other.certificate, name="other.pem")
    assert (await judge_leaf(checks, leaf)).startswith("refused")
    site.clock.advance(1000)
    assert await judge_leaf(checks, leaf) == BELIEVED

    os.unlink(site.folder / "other.pem")
    checks.reload()
    assert (await judge_leaf(checks, leaf)).startswith("refused")


async def test_a_list_that_is_being_written_does_not_take_the_place_of_the_old_one(site: Site) -> None:
    data = site.root.crl([7])
    site.has_list(data)
    checks = site.checks()
    site.has_list(data[:100])
    checks.reload()

    assert "revoked" in await judge_leaf(checks, site.root.signs(serial=7))
    os.unlink(site.folder / "ca.r0")
    checks.reload()
    assert not checks.lists()


NAMES = {"127.0.0.1": ["a.example.org"], "127.0.0.2": ["liar.example.org"], "127.0.0.3": [], "::1": ["A.Example.org"]}
ADDRESSES = {"a.example.org": ["127.0.0.1"], "A.Example.org": ["::1", "127.0.0.1"], "liar.example.org": ["127.0.0.9"]}


def find(address: str) -> Sequence[str]:
    if address not in NAMES:
        raise socket.herror(1, "Unknown host")
    return NAMES[address]


async def addresses(name: str, port: int) -> Sequence[str]:
    return ADDRESSES[name]


async def check_host(world: World, address: str, *hosts: str, subject: Subject = "Jane") -> None:
    leaf = world.root.signs(subject, extensions=[NO_CA], hosts=hosts)
    await HostCheck(find, addresses).check(read_certificate(leaf.certificate), address)


@pytest.mark.parametrize("host", ["a.example.org", "A.EXAMPLE.ORG", "*.example.org"])
async def test_a12_a_name_of_the_address_is_one_of_the_certificates(world: World, host: str) -> None:
    await check_host(world, "127.0.0.1", "other.example.org", host)
    await check_host(world, "::1", host)


@pytest.mark.parametrize(("address", "hosts", "subject", "said"), [
    (
        "127.0.0.1", ["b.example.org", "*.org"], "Jane",
        "x509: certificate is valid for b.example.org, *.org, not a.example.org.",
    ),
    ("127.0.0.1", [], "a.example.org", "x509: certificate relies on legacy Common Name field, use SANs instead"),
    (
        "127.0.0.1", ["127.0.0.1"], "a.example.org",
        "x509: certificate is not valid for any names, but wanted to match a.example.org.",
    ),
    (
        "127.0.0.1", [], "Jane",
        "x509: certificate is not valid for any names, but wanted to match a.example.org.",
    ),
    (
        "127.0.0.2", ["liar.example.org"], "Jane",
        "lookup liar.example.org.: its addresses do not include 127.0.0.2",
    ),
    ("127.0.0.3", ["a.example.org"], "Jane", "lookup 3.0.0.127.in-addr.arpa.: no such host"),
    ("127.0.0.4", ["a.example.org"], "Jane", "lookup 4.0.0.127.in-addr.arpa.: no such host"),
    ("nowhere", ["a.example.org"], "Jane", "lookup nowhere: unrecognized address"),
])  # fmt: skip
async def test_a12_each_failure_is_a_refusal(world: World, address: str, hosts: list[str], subject: str, said: str):
    with pytest.raises(CertificateRefused) as caught:
        await check_host(world, address, *hosts, subject=subject)
    assert caught.value.message == said


async def test_a12_name_servers_that_do_not_answer_are_not_waited_for(world: World) -> None:
    held = threading.Event()

    def hang(address: str) -> Sequence[str]:
        held.wait(10)
        return ["a.example.org"]

    leaf = read_certificate(world.root.signs(hosts=["a.example.org"]).certificate)
    with pytest.raises(CertificateRefused, match="the name servers do not answer"):
        await HostCheck(hang, addresses, wait_seconds=0.02).check(leaf, "127.0.0.1")
    held.set()


async def test_a12_hosts_are_looked_at_only_where_that_is_asked_for(site: Site) -> None:
    site.has_list(site.root.crl())
    assert await site.judge(site.jane) == BELIEVED

    site.hosts = HostCheck(find, addresses)
    assert "x509: certificate is not valid for any names" in await site.judge(site.jane)
    assert await site.judge(site.root.signs(hosts=["a.example.org"])) == BELIEVED


async def test_a12_the_machine_knows_the_name_of_its_own_address(world: World) -> None:
    leaf = read_certificate(world.root.signs(hosts=["localhost", socket.gethostname()]).certificate)
    await HostCheck().check(leaf, "127.0.0.1")


async def test_every_look_up_gives_its_place_back() -> None:
    hosts = HostCheck(find, wait_seconds=5.0)
    for _ in range(MAX_LOOKUP_THREADS + 1):
        assert await hosts.names_of("127.0.0.1") == ["a.example.org"]
