"""The normal form of distinguished names: the table of authn contract 10, and laws for every name."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from ams.core.distinguished_names import normalise_name, of_certificate
from tests.support.authorities import OIDS, name_of

Pairs = list[tuple[str, str]]
COMPANY: Pairs = [("C", "TC"), ("ST", "TN"), ("L", "CITY"), ("O", "COMPANY")]
TABLE: list[tuple[Pairs, str]] = [
    (COMPANY, "O=COMPANY,L=CITY,ST=TN,C=TC"),
    ([*COMPANY, ("DC", "v1"), ("DC", "v2")], "O=COMPANY,L=CITY,ST=TN,C=TC,DC=v1+DC=v2"),
    (
        [
            *COMPANY, ("DC", "v1"), ("DC", "v2"), ("CN", "service/example.com"), ("STREET", "7 Street Ave"),
            ("OU", "organizational unit 2"), ("POSTALCODE", "17121"), ("E", "email@example.com"),
        ],
        "E=email@example.com,CN=service/example.com,OU=organizational unit 2,O=COMPANY,POSTALCODE=17121,"
        "STREET=7 Street Ave,L=CITY,ST=TN,C=TC,DC=v1+DC=v2",
    ),
    (
        [
            ("DC", "org"), ("DC", "terena"), ("DC", "tcs"), ("C", "DE"), ("O", "hosts"), ("O", "GermanGrid"),
            ("OU", "DESY"), ("CN", "host/example.com"),
        ],
        "CN=host/example.com,OU=DESY,O=hosts+O=GermanGrid,C=DE,DC=org+DC=terena+DC=tcs",
    ),
    (
        [
            ("C", "GR"), ("ST", "Attikí"),
            ("O", "NATIONAL INFRASTRUCTURES FOR RESEARCH & TECHNOLOGY S.A."), ("CN", "*.einfra.grnet.gr"),
        ],
        "CN=*.einfra.grnet.gr,O=NATIONAL INFRASTRUCTURES FOR RESEARCH & TECHNOLOGY S.A.,ST=Attikí,C=GR",
    ),
    ([("C", "GR"), ("O", "Acme, Inc. + Co"), ("CN", "Jane"), ("CN", "12345")], r"CN=12345,O=Acme\, Inc. \+ Co,C=GR"),
    ([("E", "a@b.c")], "E=a@b.c,"), ([("DC", "org")], ",DC=org"), ([("CN", ""), ("C", "GR")], "C=GR"),
]  # fmt: skip
"""Real certificates and their normal form (authn contract 10)."""


@pytest.mark.parametrize(("subject", "expected"), [
    *TABLE, ([("E", "a@b.c"), ("E", "d@e.f"), ("CN", "x")], "E=a@b.c+E=d@e.f,CN=x"),
    ([("SERIALNUMBER", "1"), ("SERIALNUMBER", "2"), ("CN", "x")], "SERIALNUMBER=2,CN=x"),
    ([("UID", "u"), ("GN", "Jane"), ("TITLE", "Dr"), ("CN", "x")], "CN=x"),
    ([("O", "#1 of all"), ("OU", " both ")], r"OU=\ both\ ,O=\#1 of all"), ([("O", " ")], r"O=\ "),
    ([("O", 'a"b\\c<d>e;f/g=h')], r"O=a\"b\\c\<d\>e\;f/g=h"),
    ([("E", "a,b@c"), ("DC", "x+y"), ("CN", "n")], "E=a,b@c,CN=n,DC=x+y"), ([], ""),
])  # fmt: skip
def test_a_certificate_has_the_normal_form_of_the_table(subject: Pairs, expected: str) -> None:
    assert of_certificate(name_of(subject)) == expected


def test_values_of_one_relative_name_count_in_their_order() -> None:
    both = [x509.NameAttribute(OIDS["OU"], "a"), x509.NameAttribute(OIDS["CN"], "b")]
    subject = x509.Name([x509.RelativeDistinguishedName(both), *name_of([("OU", "c")]).rdns])
    assert of_certificate(subject) == "CN=b,OU=a+OU=c"


def test_a_value_that_is_no_text_is_dropped() -> None:
    odd = x509.NameAttribute(NameOID.X500_UNIQUE_IDENTIFIER, b"\x00\x01", x509.name._ASN1Type.BitString)
    assert of_certificate(x509.Name([odd, *name_of([("CN", "x")])])) == "CN=x"


@pytest.mark.parametrize(("text", "expected"), [
    ("/C=GR/O=Acme/CN=Jane", "CN=Jane,O=Acme,C=GR"),
    ("/DC=org/DC=terena/DC=tcs/C=DE/CN=host/example.com", "CN=host/example.com,C=DE,DC=org+DC=terena+DC=tcs"),
    ("/C=GR/ST=Attik\\xC3\\xAD/CN=x/emailAddress=a@b.c", "E=a@b.c,CN=x,ST=Attikí,C=GR"),
    ("/C=GR/O=Acme, Inc. + Co/CN=x", r"CN=x,O=Acme\, Inc. \+ Co,C=GR"), ("/CN=x/y=z/UID=u", "CN=x/y=z"),
    ("CN=host/example.com,OU=DESY,DC=tcs,DC=terena,DC=org", "CN=host/example.com,OU=DESY,DC=org+DC=terena+DC=tcs"),
    ("DC = org, DC = terena, C = DE, CN = x", "CN=x,C=DE,DC=org+DC=terena"), ("OU=my_ou,O=acme", "OU=my_ou,O=acme"),
    ("cn=Jane , o=Acme ; c=GR", "CN=Jane,O=Acme,C=GR"), ('CN=x,O="Acme, Inc."', r"CN=x,O=Acme\, Inc."),
    ("CN=x,O=Acme, Inc.", r"CN=x,O=Acme\, Inc."),
    (r"CN=x,O=Acme\2C Inc.,ST=Attik\C3\AD", r"CN=x,O=Acme\, Inc.,ST=Attikí"), (r"CN=x,O=a\\4a", r"CN=x,O=a\\4a"),
    (r"CN=x,O=end\ ,C=GR", r"CN=x,O=end\ ,C=GR"), ("CN=a+OU=b,O=c", "CN=a,OU=b,O=c"),
    ("2.5.4.3=x,OID.2.5.4.10=y,1.2.3.4=z", "CN=x,O=y"), ("E=first+last@b.c,CN=x", "E=first+last@b.c,CN=x"),
    ("E=a@b.c,", "E=a@b.c,"), (",DC=org", ",DC=org"), ("E=a@b.c,,DC=org", "E=a@b.c,,DC=org"), (" CN=x ", "CN=x"),
])  # fmt: skip
def test_a_written_name_has_the_normal_form_of_its_certificate(text: str, expected: str) -> None:
    assert normalise_name(text) == expected


@pytest.mark.parametrize("text", ["", "Jane", "/Jane", "x/CN=y", ",", "foo=bar", 'CN="x', "CN=#0401ff", r"CN=\ff"])
def test_a_text_that_is_no_distinguished_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        normalise_name(text)


any_text = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], include_characters=" "), max_size=8)
plain = st.text("abz09.@-", min_size=1, max_size=8)
escaped_labels = st.sampled_from([label for label in OIDS if label not in ("E", "DC")])
attributes = st.one_of(st.tuples(escaped_labels, any_text), st.tuples(st.sampled_from(["E", "DC"]), plain))
subjects = st.lists(attributes, max_size=8)


@given(subjects)
def test_a_normal_form_stays_as_it_is(subject: Pairs) -> None:
    form = of_certificate(name_of(subject))
    if form:
        assert normalise_name(form) == form


@given(subjects)
def test_the_form_of_rfc_4514_has_the_normal_form_of_its_certificate(subject: Pairs) -> None:
    if sum(label == "CN" for label, _ in subject) > 1 or (subject and subject[0][0] == "CN"):
        return  # one that begins with the leaf in encoded order cannot be told from one that ends with it
    certificate = name_of(subject)
    form = of_certificate(certificate)

    if form:
        assert normalise_name(certificate.rfc4514_string()) == form


@given(st.lists(st.tuples(st.sampled_from(list(OIDS)), plain), min_size=1, max_size=8))
def test_the_slashed_form_has_the_normal_form_of_its_certificate(subject: Pairs) -> None:
    slashed = "".join(f"/{label}={value}" for label, value in subject)
    assert normalise_name(slashed) == of_certificate(name_of(subject))


@given(subjects)
def test_where_attributes_of_different_kinds_stand_does_not_matter(subject: Pairs) -> None:
    assert of_certificate(name_of(sorted(subject, key=lambda pair: pair[0]))) == of_certificate(name_of(subject))


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        form = normalise_name(text)
    except ValueError:
        return
    assert isinstance(form, str)
