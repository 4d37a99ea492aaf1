"""Subjects: real certificates in the normal form of contract 10, what that form cannot say, and what is remembered."""

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from ams.authn.certificates import subjects
from ams.authn.certificates.names import comparable, subject_of
from ams.authn.certificates.reading import quietly, read_leaf
from ams.authn.certificates.subjects import Subjects, subject_sha256, unrepresentable
from ams.core.distinguished_names import normalised, of_certificate
from tests.authn.certificates.conftest import BELIEVED, REVOKED, Site, World
from tests.core.test_distinguished_names import TABLE, Pairs
from tests.support.authorities import Authority, name_of


@pytest.mark.parametrize(("subject", "form"), TABLE)
def test_a25_real_certificates_have_the_normal_form_of_the_contract(world: World, subject: Pairs, form: str) -> None:
    read = read_leaf(world.root.signs(subject).certificate).subject
    assert of_certificate(read) == form
    assert normalised(form) == form


@pytest.mark.parametrize("kind", [_ASN1Type.BMPString, _ASN1Type.UTF8String, _ASN1Type.UniversalString])
def test_a25_how_a_value_is_encoded_does_not_matter(world: World, kind: _ASN1Type) -> None:
    state = x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "Attikí", _type=kind)
    assert of_certificate(read_leaf(world.root.signs(x509.Name([state])).certificate).subject) == "ST=Attikí"


NAME, COUNTRY = b"\x0c\x08UNUSUAL!", b"\x13\x02GR"


@pytest.mark.parametrize(
    ("old", "new", "country", "name"),
    [
        (NAME, b"\x14\x08UNUSUAL!", "GR", "UNUSUAL!"),
        (NAME, b"\x14\x08Jos\xe9 Ez!", "GR", "José Ez!"),  # T61String in Latin-1, as OpenSSL and Go read it
        (NAME, b"\x14\x08Jos\xc3\xa9 E!", "GR", "José E!"),  # in UTF-8
        (NAME, b"\x16\x08Jos\xe9 Ez!", "GR", "José Ez!"),  # IA5String
        (NAME, b"\x1e\x08\0J\0o\0s\0\xe9", "GR", "José"),  # BMPString
        (NAME, b"\x1c\x08\0\0\0J\0\0\0\xe9", "GR", "Jé"),  # UniversalString
        (NAME, b"\x12\x08UNUSUAL!", "GR", "UNUSUAL!"),  # NumericString with letters
        (COUNTRY, b"\x0c\x02GR", "GR", "UNUSUAL!"),
        (COUNTRY, b"\x16\x02GR", "GR", "UNUSUAL!"),
        (COUNTRY, b"\x14\x02G\xe9", "Gé", "UNUSUAL!"),
        (COUNTRY, b"\x13\x02g1", "g1", "UNUSUAL!"),
        (COUNTRY, b"\x0c\x02\xce\x95", "Ε", "UNUSUAL!"),
        *((COUNTRY, COUNTRY, country, "UNUSUAL!") for country in ("GRC", "Greece", "G", "gr")),
    ],
)
async def test_a25_odd_encodings_and_country_codes_log_in_and_are_compared_as_text(
    site: Site, old: bytes, new: bytes, country: str, name: str
) -> None:
    subject = [("C", "GR" if old != new else country), ("CN", "UNUSUAL!")]
    shown = site.root.signs(subject).certificate
    odd = site.root.signs_changed(shown, old, new) if old != new else shown

    site.has_list(site.root.crl())
    assert await site.judge(odd) == BELIEVED
    read = Subjects().of(odd)[1]
    assert read.name == f"CN={name},C={country}"
    with quietly():
        assert comparable(subject_of(odd)) == comparable(name_of([("C", country), ("CN", name)]))


@pytest.mark.parametrize("kind", [b"\x13", b"\x14", b"\x16"])
async def test_a10_a_list_counts_whose_issuer_is_encoded_otherwise_than_its_ca(site: Site, kind: bytes) -> None:
    other = site.root.signs_changed(site.root.certificate, b"\x0c\x09Test R", kind + b"\x09Test R")
    site.trusts(other)
    leaf = site.root.signs("Jane")

    site.has_list(site.root.crl())
    assert await site.judge(leaf) == BELIEVED
    site.has_list(site.root.crl([leaf.certificate]))
    assert await site.judge(leaf) == REVOKED


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ([], "it is empty"),
        ([("CN", "Jane"), ("CN", "12345")], "it has several CN"),
        ([("SERIALNUMBER", "1"), ("SERIALNUMBER", "2")], "it has several SERIALNUMBER"),
        ([("CN", "Jane"), ("UID", "jane")], "its UID is not in the normal form"),
        ([("CN", "Jane"), ("TITLE", "Dr")], "its 2.5.4.12 is not in the normal form"),
        ([("CN", ""), ("O", "Acme")], "its CN is not in the normal form"),
        ([("E", "a@b.c+E=d@e.f")], "its E has characters that are not escaped in the normal form"),
        ([("CN", "x"), ("DC", "org,O=Acme")], "its DC has characters that are not escaped in the normal form"),
        ([("CN", "x"), ("DC", " org")], "its DC has characters that are not escaped in the normal form"),
    ],
)
def test_a8_what_the_normal_form_cannot_say_is_told(subject: Pairs, why: str) -> None:
    assert unrepresentable(name_of(subject)) == why


@pytest.mark.parametrize("subject", [each for each, form in TABLE if "12345" not in form and form[2:] != "GR"])
def test_a8_usual_subjects_can_be_said(subject: Pairs) -> None:
    assert unrepresentable(name_of(subject)) is None


def test_a8_the_digest_tells_subjects_of_one_normal_form_apart() -> None:
    one, other = name_of([("CN", "a"), ("CN", "b")]), name_of([("CN", "b")])

    assert of_certificate(one) == of_certificate(other)
    assert subject_sha256(one) != subject_sha256(other)
    assert len(subject_sha256(one)) == 64


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\x0c\x08UNUSUAL!", b"\x0c\x08UNU\xff\xfe\xfd!!"),  # no UTF-8
        (b"\x0c\x08UNUSUAL!", b"\x02\x08UNUSUAL!"),  # a number
        (b"\x0c\x08UNUSUAL!", b"\x03\x08\x00NUSUAL!"),  # bits
        (b"\x0c\x08UNUSUAL!", b"\x30\x08\x0c\x06NUSUAL"),  # a sequence
        (b"\x0c\x08UNUSUAL!", b"\x0c\x08UNUSU\x00L!"),  # NUL
        (b"\x0c\x08UNUSUAL!", b"\x0c\x08UNUSU\nL!"),
    ],
)
async def test_a19_a_subject_that_cannot_be_read_is_refused(site: Site, old: bytes, new: bytes) -> None:
    usual = site.root.signs([("C", "GR"), ("CN", "UNUSUAL!")])
    odd = site.root.signs_changed(usual.certificate, old, new)

    said = await site.judge(odd)
    assert said.replace("has a subject that ", "") == "refused: Your certificate cannot be read"


def test_a_subject_is_read_once_and_a_long_one_takes_no_memory() -> None:
    """Whoever nobody trusts can show certificates by the thousand, each with names of 100 kB."""
    known, authority = Subjects(), Authority.make("Anybody")
    usual, long = authority.signs("Jane"), authority.signs([("OU", "x" * 60)] * 40)

    assert known.of(usual.certificate)[1] is known.of(usual.certificate)[1]
    assert len(known.of(long.certificate)[1].name) > subjects.LONGEST
    assert known.of(long.certificate)[1] is not known.of(long.certificate)[1]
