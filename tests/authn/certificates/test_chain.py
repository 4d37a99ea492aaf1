"""Certificates: chains, dates, usage and proxies; and subjects in the normal form of contract 10."""

import datetime
from collections.abc import Callable
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ams.authn.certificates import certificate
from ams.authn.certificates.certificate import (
    Subjects,
    comparable,
    ignore_warnings,
    load,
    read_leaf,
    subject_of,
    subject_sha256,
    unrepresentable,
)
from ams.authn.certificates.trust import TrustFolder, TrustStore, verified_chain
from ams.authn.values import Presented
from ams.core.clock import Milliseconds
from ams.core.distinguished_names import normalise_name, of_certificate
from ams.core.errors import CertificateRefused
from tests.authn.certificates.conftest import BELIEVED, EXPIRED, REVOKED, Site, World
from tests.core.test_distinguished_names import TABLE, Pairs
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

Shown = tuple[Credentials | x509.Certificate, *tuple[x509.Certificate, ...]]  # a certificate, and what comes with it
UNTRUSTED = "is not of a CA that is trusted here"
A_PROXY = "is a proxy certificate, which cannot log in. Use the host or user certificate itself"


def issue_below(name: str, site: Site, **options: object) -> Shown:
    """Return the certificate of an intermediate CA with these options, and the root's."""
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


def issue_proxy(subject: Subject, oid: str = "") -> Callable[[Site], Shown]:
    info = bytes.fromhex("300c300a06082b06010505071501")

    def make_proxy(site: Site) -> Shown:
        extensions = [(x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), info), True)] if oid else [NO_CA]
        user = Authority(site.jane.certificate, site.jane.key)
        return user.signs(subject, extensions=extensions), site.jane.certificate

    return make_proxy


def jane_and(last: str) -> Subject:
    return [("CN", "Jane"), ("CN", last)]


def unknown_extension(size: int, *, is_critical: bool) -> Extension:
    value = b"\x04\x83" + size.to_bytes(3, "big") + bytes(size) if size else b"\x05\x00"
    return x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), value), is_critical


REFUSED: dict[str, tuple[Callable[[Site], Shown], str]] = {
    "tomorrow's": (lambda site: (site.root.signs(not_before=NOW + DAY),), "is not active yet"),
    "an expired CA's": (
        lambda site: issue_below("Old CA", site, not_after=NOW - DAY), "is of a CA whose own has expired: CN=Old CA",
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
        lambda site: issue_below("Server CA", site, extensions=[SERVER]),
        "is of a CA that is not for clients: CN=Server CA",
    ),
    "a user's": (by_a_user, ""),
    "a proxy": (issue_proxy(jane_and("4711"), "1.3.6.1.5.5.7.1.14"), A_PROXY),
    "a proxy of drafts": (issue_proxy(jane_and("4711"), "1.3.6.1.4.1.3536.1.222"), A_PROXY),
    "an old proxy": (issue_proxy(jane_and("proxy")), A_PROXY),
    "a limited proxy": (issue_proxy(jane_and("limited proxy")), A_PROXY),
    "not understood": (
        with_extensions(unknown_extension(0, is_critical=True)), "has a critical extension that is not understood here",
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
    "a CA's for servers and clients": lambda site: issue_below("Both CA", site, extensions=[BOTH]),
    "for clients": with_extensions(NO_CA, CLIENT),
    "for anything": with_extensions((x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]), False)),
    "for key agreement": with_extensions(key_usage("key_agreement")),
    "that says nothing, also no alternative names (A13)": with_extensions(),
    "of somebody who is called proxy": lambda site: (site.root.signs([("O", "Acme"), ("CN", "proxy")]),),
    "with an extension of 100 kB": with_extensions(NO_CA, unknown_extension(100_000, is_critical=False)),
    "with an empty subject": lambda site: (site.root.signs(name_of([])),),
}


@pytest.mark.parametrize("shown", GOOD.values(), ids=GOOD)
async def test_a13_client_certificates_need_no_alternative_names(site: Site, shown: Callable[[Site], Shown]) -> None:
    assert await site.judge(*shown(site), verify_certificate=False) == BELIEVED


async def test_a_certificate_of_the_folder_ends_a_chain_however_and_by_whom_it_is_signed(site: Site) -> None:
    site.trusts(site.below.certificate)
    assert await site.judge(site.below.signs(), verify_certificate=False) == BELIEVED
    assert await site.judge(site.jane, verify_certificate=False) == f"refused: Your certificate {UNTRUSTED}"

    site.trusts(site.root.signs_with_sha1(site.root.certificate))
    assert await site.judge(site.jane, verify_certificate=False) == BELIEVED


@pytest.mark.parametrize("verify", [False, True])
async def test_a_certificate_is_good_to_the_end_of_its_last_second_and_expired_from_then_on(site: Site, verify: bool):
    leaf = site.root.signs(not_after=NOW)
    site.has_list(site.root.crl())

    site.clock.advance(999)
    assert await site.judge(leaf, verify_certificate=verify) == BELIEVED
    site.clock.advance(1)
    assert await site.judge(leaf, verify_certificate=verify) == EXPIRED


class Period(NamedTuple):
    start: datetime.datetime
    end: datetime.datetime


LEAF = Period(NOW - 2 * DAY, NOW + 2 * DAY)
OLD = Period(NOW - YEARS, NOW)
NEW = Period(NOW - HOUR, NOW + DAY)
TIMES = st.integers(-12, 12).map(lambda quarters: NOW + quarters * DAY / 4 + HOUR / 2)
"""Three days back and three ahead, never at the edge of a period."""


RenewedCa = tuple[dict[Period, x509.Certificate], Credentials]


@pytest.fixture(scope="module")
def renewed_ca(world: World) -> RenewedCa:
    key = ec.generate_private_key(ec.SECP256R1())
    is_ca = (x509.BasicConstraints(ca=True, path_length=None), True)
    made = {"key": key, "extensions": [is_ca]}
    found = {
        each: world.root.signs("Renewed CA", not_before=each.start, not_after=each.end, **made).certificate
        for each in (OLD, NEW)
    }
    return found, Authority(found[OLD], key).signs(not_before=LEAF.start, not_after=LEAF.end)


@pytest.mark.parametrize("above", [[OLD], [NEW], [OLD, NEW], [NEW, OLD]])
@pytest.mark.parametrize("is_in_folder", [False, True])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=st.lists(TIMES, min_size=2, max_size=8))
def test_one_trust_judges_at_each_time_as_one_that_was_read_for_it(
    site: Site, renewed_ca: RenewedCa, is_in_folder: bool, above: list[Period], times: list[datetime.datetime]
) -> None:
    certificates, leaf = renewed_ca
    above_it = [certificates[each] for each in above]
    shown = [each.public_bytes(Encoding.DER) for each in above_it]
    site.trusts(*(above_it if is_in_folder else [site.root.certificate]))
    trust = TrustFolder(str(site.folder), site.clock).trust

    for time in times:
        fresh = TrustFolder(str(site.folder), site.clock).trust
        said = verdict(trust, leaf, shown, time)
        assert said == verdict(fresh, leaf, shown, time)
        is_good = any(each.start < time < each.end for each in above) and LEAF.start < time < LEAF.end
        assert (said == BELIEVED) == is_good


def verdict(trust: TrustStore, leaf: Credentials, shown: list[bytes], time: datetime.datetime) -> str:
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


@pytest.mark.parametrize(("subject", "form"), TABLE)
def test_a25_real_certificates_have_the_normal_form_of_the_contract(world: World, subject: Pairs, form: str) -> None:
    read = read_leaf(world.root.signs(subject).certificate).subject
    assert of_certificate(read) == form
    assert normalise_name(form) == form


NAME, COUNTRY, ODD = b"\x0c\x08UNUSUAL!", b"\x13\x02GR", b"\x13\x08*@_ & x!"


@pytest.mark.parametrize(("old", "new", "country", "name"), [
    (NAME, b"\x14\x08UNUSUAL!", "GR", "UNUSUAL!"),
    (NAME, b"\x14\x08Jos\xe9 Ez!", "GR", "José Ez!"),  # T61String in Latin-1, as OpenSSL and Go read it
    (NAME, b"\x14\x08Jos\xc3\xa9 E!", "GR", "José E!"),  # in UTF-8
    (NAME, b"\x16\x08Jos\xe9 Ez!", "GR", "José Ez!"),  # IA5String
    (NAME, b"\x1e\x08\0J\0o\0s\0\xe9", "GR", "José"),  # BMPString
    (NAME, b"\x1c\x08\0\0\0J\0\0\0\xe9", "GR", "Jé"),  # UniversalString
    (NAME, b"\x12\x08UNUSUAL!", "GR", "UNUSUAL!"),  # NumericString with letters
    (COUNTRY, b"\x0c\x02GR", "GR", "UNUSUAL!"), (COUNTRY, b"\x16\x02GR", "GR", "UNUSUAL!"),
    (COUNTRY, b"\x14\x02G\xe9", "Gé", "UNUSUAL!"), (COUNTRY, b"\x13\x02g1", "g1", "UNUSUAL!"),
    (COUNTRY, b"\x0c\x02\xce\x95", "Ε", "UNUSUAL!"),
    *((COUNTRY, COUNTRY, country, "UNUSUAL!") for country in ("GRC", "Greece", "G", "gr")),
])  # fmt: skip
async def test_a25_odd_encodings_compare_as_text(site: Site, old: bytes, new: bytes, country: str, name: str) -> None:
    subject = [("C", "GR" if old != new else country), ("CN", "UNUSUAL!")]
    shown = site.root.signs(subject).certificate
    odd = site.root.signs_changed(shown, old, new) if old != new else shown

    site.has_list(site.root.crl())
    assert await site.judge(odd) == BELIEVED
    read = Subjects().of(odd)[1]
    assert read.name == f"CN={name},C={country}"
    with ignore_warnings():
        assert comparable(subject_of(odd)) == comparable(name_of([("C", country), ("CN", name)]))


async def test_a25_a_printable_string_with_other_characters_logs_in_as_it_was_signed(site: Site) -> None:
    site.has_list(site.root.crl())
    signed = site.root.signs_bytes(site.root.signs([("C", "GR"), ("CN", "UNUSUAL!")]).certificate, NAME, ODD)
    leaf, shown = load(signed)
    checks = site.checks()

    await checks.check(Presented(leaf, shown=shown), "", verify_host=False)
    assert Subjects().of(leaf)[1].name == "CN=*@_ & x!,C=GR"
    for other in (b"", shown[:-1] + bytes([shown[-1] ^ 1])):
        with pytest.raises(CertificateRefused, match="not signed by the CA it names"):
            await checks.check(Presented(leaf, shown=other), "", verify_host=False)


@pytest.mark.parametrize("kind", [b"\x13", b"\x14", b"\x16"])
async def test_a10_a_list_counts_whose_issuer_is_encoded_otherwise_than_its_ca(site: Site, kind: bytes) -> None:
    other = site.root.signs_changed(site.root.certificate, b"\x0c\x09Test R", kind + b"\x09Test R")
    site.trusts(other)
    leaf = site.root.signs("Jane")

    site.has_list(site.root.crl())
    assert await site.judge(leaf) == BELIEVED
    site.has_list(site.root.crl([leaf.certificate]))
    assert await site.judge(leaf) == REVOKED


@pytest.mark.parametrize(("subject", "why"), [
    ([], "it is empty"),
    ([("CN", "Jane"), ("CN", "12345")], "it has several CN"),
    ([("SERIALNUMBER", "1"), ("SERIALNUMBER", "2")], "it has several SERIALNUMBER"),
    ([("CN", "Jane"), ("UID", "jane")], "its UID is not in the normal form"),
    ([("CN", "Jane"), ("TITLE", "Dr")], "its 2.5.4.12 is not in the normal form"),
    ([("CN", ""), ("O", "Acme")], "its CN is not in the normal form"),
    ([("E", "a@b.c+E=d@e.f")], "its E has characters that are not escaped in the normal form"),
    ([("CN", "x"), ("DC", "org,O=Acme")], "its DC has characters that are not escaped in the normal form"),
    ([("CN", "x"), ("DC", " org")], "its DC has characters that are not escaped in the normal form"),
])  # fmt: skip
def test_a8_what_the_normal_form_cannot_say_is_told(subject: Pairs, why: str) -> None:
    assert unrepresentable(name_of(subject)) == why


def test_a8_the_digest_tells_subjects_of_one_normal_form_apart() -> None:
    one, other = name_of([("CN", "a"), ("CN", "b")]), name_of([("CN", "b")])
    assert of_certificate(one) == of_certificate(other)
    assert subject_sha256(one) != subject_sha256(other)
    assert len(subject_sha256(one)) == 64


@pytest.mark.parametrize(("old", "new"), [
    (b"\x0c\x08UNUSUAL!", b"\x0c\x08UNU\xff\xfe\xfd!!"),  # no UTF-8
    (b"\x0c\x08UNUSUAL!", b"\x02\x08UNUSUAL!"),  # a number
    (b"\x0c\x08UNUSUAL!", b"\x03\x08\x00NUSUAL!"),  # bits
    (b"\x0c\x08UNUSUAL!", b"\x30\x08\x0c\x06NUSUAL"),  # a sequence
    (b"\x0c\x08UNUSUAL!", b"\x0c\x08UNUSU\x00L!"),  # NUL
    (b"\x0c\x08UNUSUAL!", b"\x0c\x08UNUSU\nL!"),
])  # fmt: skip
async def test_a19_a_subject_that_cannot_be_read_is_refused(site: Site, old: bytes, new: bytes) -> None:
    usual = site.root.signs([("C", "GR"), ("CN", "UNUSUAL!")])
    odd = site.root.signs_changed(usual.certificate, old, new)
    said = await site.judge(odd)
    assert said.replace("has a subject that ", "") == "refused: Your certificate cannot be read"


def test_a_subject_is_read_once_and_a_long_one_takes_no_memory() -> None:
    """Anybody can show untrusted certificates by the thousand, each with names of 100 kB."""
    known, authority = Subjects(), Authority.make("Anybody")
    usual, long = authority.signs("Jane"), authority.signs([("OU", "x" * 60)] * 40)

    assert known.of(usual.certificate)[1] is known.of(usual.certificate)[1]
    assert len(known.of(long.certificate)[1].name) > certificate.MAX_CHARACTERS
    assert known.of(long.certificate)[1] is not known.of(long.certificate)[1]
