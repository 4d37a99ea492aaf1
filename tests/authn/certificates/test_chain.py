"""Chains, dates, usage and proxy certificates: what is said of each certificate that is not believed."""

import datetime
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ams.authn.certificates.chain import verified_chain
from ams.authn.certificates.reading import read_leaf
from ams.authn.certificates.trust import Trust, TrustFolder
from ams.core.clock import Milliseconds
from ams.core.errors import CertificateRefused
from tests.authn.certificates.conftest import Site, World
from tests.support.authorities import (
    BOTH,
    CLIENT,
    DAY,
    HOUR,
    NO_CA,
    NOW,
    SERVER,
    YEARS,
    Authority,
    Credentials,
    key_usage,
    name_of,
)

UNTRUSTED = "Your certificate is not of a CA that is trusted here"


async def refused(site: Site, leaf: Credentials | x509.Certificate, *chain: x509.Certificate) -> str:
    with pytest.raises(CertificateRefused) as caught:
        await site.check(leaf, *chain, verify_certificate=False)
    return caught.value.message


async def test_a_certificate_of_a_trusted_ca_is_believed(site: Site, world: World) -> None:
    await site.check(world.jane, verify_certificate=False)


async def test_a_chain_is_found_among_what_a_client_shows_in_any_order(site: Site, world: World) -> None:
    leaf = world.below.signs()

    await site.check(leaf, world.root.certificate, world.below.certificate, verify_certificate=False)
    assert await refused(site, leaf) == UNTRUSTED


async def test_a_certificate_of_the_folder_ends_a_chain_though_another_has_signed_it(site: Site, world: World) -> None:
    site.trusts(world.below.certificate)

    await site.check(world.below.signs(), verify_certificate=False)
    assert await refused(site, world.jane) == UNTRUSTED


@pytest.mark.parametrize("verify", [False, True])
async def test_an_expired_certificate_hears_the_contracts_text(site: Site, world: World, verify: bool) -> None:
    leaf = world.root.signs(not_after=NOW - DAY)

    with pytest.raises(CertificateRefused, match="^Your certificate has expired$"):
        await site.check(leaf, verify_certificate=verify)


async def test_a_certificate_is_good_to_the_end_of_its_last_second(site: Site, world: World) -> None:
    leaf = world.root.signs(not_after=NOW)

    site.clock.advance(999)
    await site.check(leaf, verify_certificate=False)
    site.clock.advance(1)
    assert await refused(site, leaf) == "Your certificate has expired"


async def test_a_certificate_of_tomorrow_hears_the_contracts_text(site: Site, world: World) -> None:
    assert await refused(site, world.root.signs(not_before=NOW + DAY)) == "Your certificate is not active yet"


async def test_an_expired_ca_is_named(site: Site, world: World) -> None:
    old = Authority.make("Old CA", issuer=world.root, not_after=NOW - DAY)

    said = await refused(site, old.signs(), old.certificate)
    assert said == "Your certificate is of a CA whose own has expired: CN=Old CA"


@dataclass(frozen=True)
class Period:
    """From when to when a certificate is good."""

    start: datetime.datetime
    end: datetime.datetime


LEAF = Period(NOW - 2 * DAY, NOW + 2 * DAY)
OLD = Period(NOW - YEARS, NOW)
NEW = Period(NOW - HOUR, NOW + DAY)
TIMES = st.integers(-12, 12).map(lambda quarters: NOW + quarters * DAY / 4 + HOUR / 2)
"""Three days back and three ahead, never at the edge of a period."""


@dataclass(frozen=True)
class Renewed:
    """A CA whose certificate was renewed with the same key, and a certificate that it has signed."""

    certificates: dict[Period, x509.Certificate]
    leaf: Credentials


@pytest.fixture(scope="module")
def renewed(world: World) -> Renewed:
    key = ec.generate_private_key(ec.SECP256R1())
    is_ca = (x509.BasicConstraints(ca=True, path_length=None), True)
    found = {
        each: world.root.signs(
            "Renewed CA", key=key, not_before=each.start, not_after=each.end, extensions=[is_ca]
        ).certificate
        for each in (OLD, NEW)
    }
    leaf = Authority(found[OLD], key).signs(not_before=LEAF.start, not_after=LEAF.end)
    return Renewed(found, leaf)


@pytest.mark.parametrize("above", [[OLD], [NEW], [OLD, NEW], [NEW, OLD]])
@pytest.mark.parametrize("is_in_folder", [False, True])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=st.lists(TIMES, min_size=2, max_size=8))
def test_one_trust_judges_at_each_time_as_one_that_was_read_for_it(
    site: Site, world: World, renewed: Renewed, is_in_folder: bool, above: list[Period], times: list[datetime.datetime]
) -> None:
    shown = [renewed.certificates[each] for each in above]
    site.trusts(*(shown if is_in_folder else [world.root.certificate]))
    trust = TrustFolder(str(site.folder), site.clock).trust

    for time in times:
        fresh = TrustFolder(str(site.folder), site.clock).trust
        said = verdict(trust, renewed.leaf, shown, time)
        assert said == verdict(fresh, renewed.leaf, shown, time)
        is_good = any(each.start < time < each.end for each in above) and LEAF.start < time < LEAF.end
        assert (said == "believed") == is_good


def verdict(trust: Trust, leaf: Credentials, shown: list[x509.Certificate], time: datetime.datetime) -> str:
    """Return what is said of a certificate at a time."""
    try:
        verified_chain(read_leaf(leaf.certificate), shown, trust, Milliseconds(int(time.timestamp() * 1000)))
    except CertificateRefused as error:
        return error.message
    return "believed"


def unknown(_: World) -> Credentials:
    return Authority.make("Stranger").signs()


def self_signed(_: World) -> Credentials:
    return Authority.make("Stranger", usage=["digital_signature"])


def namesake(_: World) -> Credentials:
    return Authority.make("Test Root").signs()


def not_understood(world: World) -> Credentials:
    odd = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")
    return world.root.signs(extensions=[(odd, True)])


def for_servers(world: World) -> Credentials:
    return world.root.signs(extensions=[NO_CA, SERVER])


def for_encryption(world: World) -> Credentials:
    return world.root.signs(extensions=[NO_CA, key_usage("key_encipherment")])


def a_ca(world: World) -> Credentials:
    return Authority.make("Another CA", issuer=world.root)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (unknown, UNTRUSTED),
        (self_signed, "Your certificate is self-signed, and not trusted here"),
        (namesake, "Your certificate is not signed by the CA it names"),
        (not_understood, "Your certificate has a critical extension that is not understood here"),
        (for_servers, "Your certificate is not for clients: its extended key usage does not say so"),
        (for_encryption, "Your certificate is not for clients: its key usage allows no signature"),
        (a_ca, "Your certificate is one of a CA, which cannot log in"),
    ],
)
async def test_each_certificate_that_is_not_believed_is_told_why(
    site: Site, world: World, made: Callable[[World], Credentials], said: str
) -> None:
    assert await refused(site, made(world)) == said


async def test_a_ca_below_one_that_allows_none_is_refused(site: Site, world: World) -> None:
    short = Authority.make("Short CA", issuer=world.root, path_length=0)
    low = Authority.make("Low CA", issuer=short)

    said = await refused(site, low.signs(), low.certificate, short.certificate)
    assert said == "Your certificate is of a CA below one that allows no such CA"


async def test_a_ca_that_is_for_servers_signs_no_clients(site: Site, world: World) -> None:
    other = Authority.make("Server CA", issuer=world.root, extensions=[SERVER])
    both = Authority.make("Both CA", issuer=world.root, extensions=[BOTH])

    said = await refused(site, other.signs(), other.certificate)
    assert said == "Your certificate is of a CA that is not for clients: CN=Server CA"
    await site.check(both.signs(), both.certificate, verify_certificate=False)


async def test_what_is_signed_with_sha1_can_be_forged_and_is_refused(site: Site, world: World) -> None:
    old = world.root.signs_with_sha1(world.jane.certificate)
    ca = world.root.signs_with_sha1(world.below.certificate)

    assert await refused(site, old) == "Your certificate has a signature that is too weak: sha1"
    said = await refused(site, world.below.signs(), ca)
    assert said == "Your certificate is of a CA whose own has a signature that is too weak: CN=Test CA"


async def test_a_key_that_is_too_short_is_refused(site: Site, world: World) -> None:
    short = rsa.generate_private_key(65537, 1024)

    said = await refused(site, world.root.signs(key=short))
    assert said == "Your certificate has a key that is too short"


async def test_a_ca_of_the_folder_is_believed_however_it_is_signed(site: Site, world: World) -> None:
    old = world.root.signs_with_sha1(world.root.certificate)
    site.trusts(old)

    await site.check(world.jane, verify_certificate=False)


async def test_nobody_but_a_ca_signs_certificates(site: Site, world: World) -> None:
    user = world.root.signs("Jane", extensions=[NO_CA, key_usage("digital_signature")])
    forger = Authority(user.certificate, user.key)

    assert (await refused(site, forger.signs("Mallory"), user.certificate)).startswith("Your certificate ")


@pytest.mark.parametrize(
    "extensions",
    [
        [NO_CA, CLIENT],
        [(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]), False)],
        [key_usage("key_agreement")],
        [],
    ],
)
async def test_certificates_that_are_for_clients_are_believed(
    site: Site, world: World, extensions: list[tuple[x509.ExtensionType, bool]]
) -> None:
    await site.check(world.root.signs(extensions=extensions), verify_certificate=False)


@pytest.mark.parametrize("oid", ["1.3.6.1.5.5.7.1.14", "1.3.6.1.4.1.3536.1.222"])
async def test_a_proxy_certificate_is_refused_with_what_to_use_instead(site: Site, world: World, oid: str) -> None:
    user = Authority(world.jane.certificate, world.jane.key)
    info = (x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), bytes.fromhex("300c300a06082b06010505071501")), True)
    proxy = user.signs([("CN", "Jane"), ("CN", "4711")], extensions=[info])

    said = await refused(site, proxy, world.jane.certificate)
    assert said == (
        "Your certificate is a proxy certificate, which cannot log in. Use the host or user certificate itself"
    )


@pytest.mark.parametrize("name", ["proxy", "limited proxy"])
async def test_a_proxy_certificate_of_the_oldest_kind_is_refused_too(site: Site, world: World, name: str) -> None:
    user = Authority(world.jane.certificate, world.jane.key)

    said = await refused(site, user.signs([("CN", "Jane"), ("CN", name)]), world.jane.certificate)
    assert "is a proxy certificate" in said


async def test_somebody_who_is_called_proxy_is_none(site: Site, world: World) -> None:
    await site.check(world.root.signs([("O", "Acme"), ("CN", "proxy")]), verify_certificate=False)


@pytest.mark.parametrize("verify", [False, True])
async def test_in_development_a_certificate_of_anybody_is_believed(site: Site, verify: bool) -> None:
    await site.check(Authority.make("Stranger").signs(), trust_unknown_cas=True, verify_certificate=verify)


async def test_in_development_dates_count_only_where_certificates_are_verified(site: Site) -> None:
    old = Authority.make("Stranger").signs(not_after=NOW - DAY)

    await site.check(old, trust_unknown_cas=True, verify_certificate=False)
    with pytest.raises(CertificateRefused, match="has expired"):
        await site.check(old, trust_unknown_cas=True, verify_certificate=True)


async def test_a_hundred_thousand_bytes_of_extensions_are_read(site: Site, world: World) -> None:
    big = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x04\x83\x01\x86\xa0" + bytes(100_000))

    await site.check(world.root.signs(extensions=[NO_CA, (big, False)]), verify_certificate=False)


async def test_an_empty_subject_is_believed_as_it_is_signed(site: Site, world: World) -> None:
    await site.check(world.root.signs(name_of([])), verify_certificate=False)
