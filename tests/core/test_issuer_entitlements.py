"""Entitlements: what is one, and which texts mean the same (AARC-G069, RFC 8141)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.issuer import LONGEST_ENTITLEMENT, Entitlement, is_entitlement, read_entitlement

EGI = "urn:mace:egi.eu"


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (f"{EGI}:group:vo.example", Entitlement(EGI, ("vo.example",))),
        (f"{EGI}:group:vo:sub:inner", Entitlement(EGI, ("vo", "sub", "inner"))),
        (f"{EGI}:group:vo:role=member", Entitlement(EGI, ("vo",), "member")),
        (f"{EGI}:group:vo#aai.egi.eu", Entitlement(EGI, ("vo",), None, "aai.egi.eu")),
        (f"{EGI}:group:vo:sub:role=m#a:b/c?d", Entitlement(EGI, ("vo", "sub"), "m", "a:b/c?d")),
        (f"{EGI}:res:more:group:vo", Entitlement(f"{EGI}:res:more", ("vo",))),
        ("urn:geant:group:group:vo", Entitlement("urn:geant:group", ("vo",))),
        (f"{EGI}:group:group:group", Entitlement(EGI, ("group", "group"))),
        (f"{EGI}:group:Registered+User", Entitlement(EGI, ("Registered+User",))),
    ],
)
def test_an_entitlement_says_group_role_and_authority(text: str, meaning: Entitlement) -> None:
    assert read_entitlement(text) == meaning


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("UrN:NiD:ExAmPlE.oRg:group:Minun%20Ryhm%c3%a4ni", "urn:nid:example.org:group:Minun%20Ryhm%C3%A4ni"),
        (f"{EGI}:group:vo:role=a%2fb#x%3a", f"{EGI}:group:vo:role=a%2Fb#x%3A"),
    ],
)
def test_case_of_the_namespace_and_of_encodings_does_not_matter(one: str, other: str) -> None:
    assert read_entitlement(one) == read_entitlement(other) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"{EGI}:group:vo", f"{EGI}:group:VO"),
        (f"{EGI}:group:vo:role=m", f"{EGI}:group:vo:role=M"),
        (f"{EGI}:group:vo#a", f"{EGI}:group:vo#A"),
        (f"{EGI}:group:A", f"{EGI}:group:%41"),
        (f"{EGI}:group:a:b", f"{EGI}:group:a%3Ab"),
    ],
)
def test_case_of_anything_else_and_encoding_matter(one: str, other: str) -> None:
    assert read_entitlement(one) != read_entitlement(other)


@pytest.mark.parametrize(
    "text",
    [
        "", "admin", "group:vo", "urn:mace:group:vo", f"{EGI}:group", f"{EGI}:group:", f"{EGI}:group:vo:",
        f"{EGI}:group::vo", f"{EGI}:groups:vo", f"{EGI}:GROUP:vo", f"{EGI}:group:role=x", f"{EGI}:group:vo:role=",
        f"{EGI}:group:vo:role=a:role=b", f"{EGI}:group:vo:role=a:sub", f"{EGI}:group:vo#", f"{EGI}:group:vo#a#b",
        f"{EGI}:group:my vo", f"{EGI}:group:vo%2", f"{EGI}:group:vo%zz", f"{EGI}:group:v\u00f6", f"{EGI}:group:vo\n",
        f" {EGI}:group:vo", f"{EGI}:group:vo?+r", f"{EGI}:group:vo#\u00e4", "urn:x:y:group:vo", "urn:-ab:y:group:vo",
        "https://x.example/group:vo", f"{EGI}:group:vo\x00", f"{EGI}:group:\ud800",
        f"{EGI}:group:{'a' * LONGEST_ENTITLEMENT}",
    ],
)  # fmt: skip
def test_what_is_no_entitlement_is_none(text: str) -> None:
    assert not is_entitlement(text)


def test_who_has_a_role_under_an_authority_has_what_says_less() -> None:
    entitlement = Entitlement(EGI, ("vo",), "member", "aai")

    assert set(entitlement.met()) == {
        entitlement,
        Entitlement(EGI, ("vo",), "member"),
        Entitlement(EGI, ("vo",), None, "aai"),
        Entitlement(EGI, ("vo",)),
    }


@settings(max_examples=100)
@given(st.text(max_size=30), st.text(alphabet="urn:mace%group=roleAB#/ ", max_size=40))
def test_any_text_is_an_entitlement_or_not(anything: str, alike: str) -> None:
    for text in (anything, alike, f"{EGI}:group:{anything}", f"{EGI}:group:{alike}"):
        found = read_entitlement(text)
        assert found is None or found in set(found.met())
