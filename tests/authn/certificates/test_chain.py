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
from tests.authn.certificates.conftest import BELIEVED, EXPIRED, Site, World
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
    Extension,
    Subject,
    key_usage,
    name_of,
)

Shown = tuple[Credentials | x509.Certificate, *tuple[x509.Certificate, ...]]
"""A certificate, and what comes with it."""
UNTRUSTED = "is not of a CA that is trusted here"
A_PROXY = "is a proxy certificate, which cannot log in. Use the host or user certificate itself"


def below(name: str, site: Site, **options: object) -> Shown:
    """Return a certificate of a CA below the root that is made so, and the CA's."""
    authority = Authority.make(name, issuer=site.root, **options)
    return authority.signs(), authority.certificate


def with_extensions(*extensions: Extension) -> Callable[[Site], Shown]:
    return lambda site: (site.root.signs(extensions=extensions),)


def below_a_short_one(site: Site) -> Shown:
    short = Authority.make("Short CA", issuer=site.root, path_length=0)
    low = Authority.make("Low CA", issuer=short)
    return low.signs(), low.certificate, short.certificate


def by_a_user(site: Site) -> Shown:
    user = site.root.signs("Jane", extensions=[NO_CA, key_usage("digital_signature")])
    return Authority(user.certificate, user.key).signs("Mallory"), user.certificate


def proxy(subject: Subject, oid: str = "") -> Callable[[Site], Shown]:
    """Return a proxy certificate that Jane signed, by its extension or by its name."""
    info = bytes.fromhex("300c300a06082b06010505071501")

    def made(site: Site) -> Shown:
        extensions = [(x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), info), True)] if oid else [NO_CA]
        user = Authority(site.jane.certificate, site.jane.key)
        return user.signs(subject, extensions=extensions), site.jane.certificate

    return made


def jane_and(last: str) -> Subject:
    return [("CN", "Jane"), ("CN", last)]


def unknown(size: int, *, is_critical: bool) -> Extension:
    value = b"\x04\x83" + size.to_bytes(3, "big") + bytes(size) if size else b"\x05\x00"
    return x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), value), is_critical


REFUSED: dict[str, tuple[Callable[[Site], Shown], str]] = {
    "tomorrow's": (lambda site: (site.root.signs(not_before=NOW + DAY),), "is not active yet"),
    "an expired CA's": (
        lambda site: below("Old CA", site, not_after=NOW - DAY), "is of a CA whose own has expired: CN=Old CA",
    ),
    "without the CA between": (lambda site: (site.below.signs(),), UNTRUSTED),
    "a stranger's": (lambda site: (Authority.make("Stranger").signs(),), UNTRUSTED),
    "self-signed": (
        lambda site: (Authority.make("Stranger", usage=["digital_signature"]),), "is self-signed, and not trusted here",
    ),
    "a namesake's": (lambda site: (Authority.make("Test Root").signs(),), "is not signed by the CA it names"),
    "for servers": (
        with_extensions(NO_CA, SERVER), "is not for clients: its extended key usage does not say so",
    ),
    "for encryption": (
        with_extensions(NO_CA, key_usage("key_encipherment")), "is not for clients: its key usage allows no signature",
    ),
    "a CA's": (lambda site: (Authority.make("Another CA", issuer=site.root),), "is one of a CA, which cannot log in"),
    "too far below": (below_a_short_one, "is of a CA below one that allows no such CA"),
    "a CA's that is for servers": (
        lambda site: below("Server CA", site, extensions=[SERVER]), "is of a CA that is not for clients: CN=Server CA",
    ),
    "a user's": (by_a_user, ""),
    "a proxy": (proxy(jane_and("4711"), "1.3.6.1.5.5.7.1.14"), A_PROXY),
    "a proxy of drafts": (proxy(jane_and("4711"), "1.3.6.1.4.1.3536.1.222"), A_PROXY),
    "an old proxy": (proxy(jane_and("proxy")), A_PROXY),
    "a limited proxy": (proxy(jane_and("limited proxy")), A_PROXY),
    "not understood": (
        with_extensions(unknown(0, is_critical=True)), "has a critical extension that is not understood here",
    ),
    "signed with SHA-1": (
        lambda site: (site.root.signs_with_sha1(site.jane.certificate),), "has a signature that is too weak: sha1",
    ),
    "a short key": (
        lambda site: (site.root.signs(key=rsa.generate_private_key(65537, 1024)),), "has a key that is too short",
    ),
    "below a CA whose own is signed with SHA-1": (
        lambda site: (site.below.signs(), site.root.signs_with_sha1(site.below.certificate)),
        "is of a CA whose own has a signature that is too weak: CN=Test CA",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("shown", "why"), REFUSED.values(), ids=REFUSED)
async def test_each_refused_certificate_is_told_why(site: Site, shown: Callable[[Site], Shown], why: str) -> None:
    said = await site.judge(*shown(site), verify_certificate=False)
    assert said.startswith("refused: Your certificate ")
    assert not why or said == f"refused: Your certificate {why}"


GOOD: dict[str, Callable[[Site], Shown]] = {
    "a trusted CA's": lambda site: (site.jane,),
    "with a chain in any order": lambda site: (site.below.signs(), site.root.certificate, site.below.certificate),
    "a CA's for servers and clients": lambda site: below("Both CA", site, extensions=[BOTH]),
    "for clients": with_extensions(NO_CA, CLIENT),
    "for anything": with_extensions((x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]), False)),
    "for key agreement": with_extensions(key_usage("key_agreement")),
    "that says nothing": with_extensions(),
    "of somebody who is called proxy": lambda site: (site.root.signs([("O", "Acme"), ("CN", "proxy")]),),
    "with an extension of 100 kB": with_extensions(NO_CA, unknown(100_000, is_critical=False)),
    "with an empty subject": lambda site: (site.root.signs(name_of([])),),
}


@pytest.mark.parametrize("shown", GOOD.values(), ids=GOOD)
async def test_certificates_that_are_for_clients_are_believed(site: Site, shown: Callable[[Site], Shown]) -> None:
    assert await site.judge(*shown(site), verify_certificate=False) == BELIEVED


async def test_a_certificate_of_the_folder_ends_a_chain_however_and_by_whom_it_is_signed(site: Site) -> None:
    site.trusts(site.below.certificate)
    assert await site.judge(site.below.signs(), verify_certificate=False) == BELIEVED
    assert await site.judge(site.jane, verify_certificate=False) == f"refused: Your certificate {UNTRUSTED}"

    site.trusts(site.root.signs_with_sha1(site.root.certificate))
    assert await site.judge(site.jane, verify_certificate=False) == BELIEVED


@pytest.mark.parametrize("verify", [False, True])
async def test_an_expired_certificate_hears_the_contracts_text(site: Site, verify: bool) -> None:
    assert await site.judge(site.root.signs(not_after=NOW - DAY), verify_certificate=verify) == EXPIRED


async def test_a_certificate_is_good_to_the_end_of_its_last_second(site: Site) -> None:
    leaf = site.root.signs(not_after=NOW)

    site.clock.advance(999)
    assert await site.judge(leaf, verify_certificate=False) == BELIEVED
    site.clock.advance(1)
    assert await site.judge(leaf, verify_certificate=False) == EXPIRED


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
    made = {"key": key, "extensions": [is_ca]}
    found = {
        each: world.root.signs("Renewed CA", not_before=each.start, not_after=each.end, **made).certificate
        for each in (OLD, NEW)
    }
    leaf = Authority(found[OLD], key).signs(not_before=LEAF.start, not_after=LEAF.end)
    return Renewed(found, leaf)


@pytest.mark.parametrize("above", [[OLD], [NEW], [OLD, NEW], [NEW, OLD]])
@pytest.mark.parametrize("is_in_folder", [False, True])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=st.lists(TIMES, min_size=2, max_size=8))
def test_one_trust_judges_at_each_time_as_one_that_was_read_for_it(
    site: Site, renewed: Renewed, is_in_folder: bool, above: list[Period], times: list[datetime.datetime]
) -> None:
    shown = [renewed.certificates[each] for each in above]
    site.trusts(*(shown if is_in_folder else [site.root.certificate]))
    trust = TrustFolder(str(site.folder), site.clock).trust

    for time in times:
        fresh = TrustFolder(str(site.folder), site.clock).trust
        said = verdict(trust, renewed.leaf, shown, time)
        assert said == verdict(fresh, renewed.leaf, shown, time)
        is_good = any(each.start < time < each.end for each in above) and LEAF.start < time < LEAF.end
        assert (said == BELIEVED) == is_good


def verdict(trust: Trust, leaf: Credentials, shown: list[x509.Certificate], time: datetime.datetime) -> str:
    """Return what is said of a certificate at a time."""
    try:
        verified_chain(read_leaf(leaf.certificate), shown, trust, Milliseconds(int(time.timestamp() * 1000)))
    except CertificateRefused as error:
        return error.message
    return BELIEVED


@pytest.mark.parametrize("verify", [False, True])
async def test_in_development_dates_count_only_where_certificates_are_verified(site: Site, verify: bool) -> None:
    stranger, options = Authority.make("Stranger"), {"trust_unknown_cas": True, "verify_certificate": verify}
    assert await site.judge(stranger.signs(), **options) == BELIEVED
    assert await site.judge(stranger.signs(not_after=NOW - DAY), **options) == (EXPIRED if verify else BELIEVED)
