"""Issuers: their settings, several in a file, and entitlements (AARC-G069, RFC 8141)."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ams.access.permissions import PROJECT_ROLES
from ams.core import issuer as rules
from ams.core.errors import BadSettings, InvalidInput
from ams.core.issuer import (
    MAX_ENTITLEMENT_LENGTH,
    Entitlement,
    Issuer,
    RoleRule,
    check_together,
    read_entitlement,
    read_issuer,
    read_issuers,
    validate,
)
from ams.core.names import IssuerName

VO = "urn:mace:egi.eu:group:vo"
ISSUER = Issuer(IssuerName("egi"), "https://aai.egi.eu/auth/realms/egi", audiences=("ams",))
OPAQUE = replace(ISSUER, introspect="opaque", client_id="ams", client_secret="s3cret")


def test_rules_give_the_roles_of_projects() -> None:
    assert rules.ROLES == PROJECT_ROLES


def test_a_secret_is_not_shown() -> None:
    assert "s3cret" not in repr(OPAQUE)


@pytest.mark.parametrize("issuer", [
    ISSUER, OPAQUE, replace(ISSUER, url="http://127.0.0.1:8080/"), replace(ISSUER, url="https://[::1]:8443"),
    replace(ISSUER, audiences=(), clients=("app",)),
    replace(ISSUER, jwks_url="https://keys.example/jwks?realm=a", introspection_url="http://x.example/i"),
    replace(ISSUER, create_users=True, roles=(RoleRule(VO, "P", ("publisher", "consumer")),)),
])  # fmt: skip
def test_what_can_be_said_of_an_issuer_is_kept(issuer: Issuer) -> None:
    assert validate(issuer) == issuer


def test_what_is_listed_twice_is_listed_once() -> None:
    twice = replace(
        ISSUER, audiences=("a", "b", "a"), clients=("c", "c"), entitlement_claims=("e", "e"),
        roles=(RoleRule(VO, "P", ("publisher", "publisher")), RoleRule(VO, "P", ("publisher",))),
    )  # fmt: skip

    assert validate(twice) == replace(
        ISSUER, audiences=("a", "b"), clients=("c",), entitlement_claims=("e",),
        roles=(RoleRule(VO, "P", ("publisher",)),),
    )  # fmt: skip


NO_CLIENT = "An issuer that is asked about tokens needs a client_id and a client_secret to ask with"


@pytest.mark.parametrize(("change", "message"), [
    ({"name": ""}, "Invalid issuer name"),
    ({"name": "a b"}, "Invalid issuer name"),
    ({"name": "a" * 101}, "Invalid issuer name"),
    *(
        ({"url": url}, "An issuer's url is https://HOST or https://HOST/PATH, exactly as its tokens say it")
        for url in [
            "", "aai.egi.eu", "ldap://x", "https://", "https://x y", "https://x/#a", "https://x/?a", "https://u@x",
            "https://x:0", "https://x:99999", "https://[::1", "https://\u00e9.example", "https://x\\y", "https://x\n",
            "https://x/" + "a" * 2000,
        ]
    ),
    ({"jwks_url": "file:///etc"}, "An issuer's jwks_url is an https or http URL"),
    ({"introspection_url": "x"}, "An issuer's introspection_url is an https or http URL"),
    ({"audiences": ()}, "An issuer needs audiences or clients: else its tokens for other services would do here"),
    ({"audiences": ("",)}, "An issuer's audiences have 1 to 255 printable characters each"),
    ({"audiences": ("a" * 256,)}, "An issuer's audiences have 1 to 255 printable characters each"),
    ({"audiences": tuple(map(str, range(101)))}, "An issuer has at most 100 audiences"),
    ({"clients": ("a\x00",)}, "An issuer's clients have 1 to 255 printable characters each"),
    ({"entitlement_claims": tuple("abcdefghijk")}, "An issuer has at most 10 entitlement_claims"),
    ({"introspect": "sometimes"}, "An issuer's introspect is never, opaque or always"),
    ({"introspect": "always", "client_id": "a"}, NO_CLIENT),
    ({"introspect": "opaque", "client_secret": "a"}, NO_CLIENT),
    ({"client_id": "a\n"}, "An issuer's client_id has at most 255 printable characters"),
    ({"client_secret": "a" * 1001}, "An issuer's client_secret has at most 1000 printable characters"),
    ({"create_users": True}, "An issuer with create_users needs rules for roles: who has no role becomes no user"),
    ({"roles": (RoleRule("admin", "P", ("publisher",)),)},
     "invalid entitlement: 'admin' is not urn:NID:NAMESPACE:group:GROUP[:SUBGROUP][:role=ROLE][#AUTHORITY]"),
    ({"roles": (RoleRule(VO, "a/b", ("publisher",)),)}, "Invalid project name"),
    ({"roles": (RoleRule(VO, "P", ()),)}, "A rule for roles in P has none"),
    ({"roles": (RoleRule(VO, "P", ("service_admin",)),)}, "invalid role: service_admin"),
    ({"roles": (RoleRule(VO, "P", ("\ud800",)),)}, "invalid role"),
    ({"roles": (RoleRule(VO, "P", ("publisher",)),) * 101}, "An issuer has at most 100 rules for roles"),
])  # fmt: skip
def test_what_cannot_be_said_of_an_issuer_is_told(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        validate(replace(ISSUER, **change))  # type: ignore[arg-type]
    assert refused.value.message == message


def test_an_issuer_is_read_by_the_names_of_its_fields() -> None:
    rule = {"entitlement": VO, "project": "P", "roles": ["publisher"]}
    read = read_issuer({"name": "egi", "url": ISSUER.url, "audiences": ["ams"], "roles": [rule]})
    assert read == replace(ISSUER, roles=(RoleRule(VO, "P", ("publisher",)),))


@pytest.mark.parametrize(("values", "message"), [
    ({"name": None}, "cannot be read: Expected `str`"),
    ({"url": 1}, "cannot be read: Expected `str`, got `int` - at `$.url`"),
    ({"audiences": "ams"}, "cannot be read: Expected `array`"),
    ({"audience": ["ams"]}, "has no 'audience': what there is, is "),
    ({"roles": [{"role": 1}]}, "has no 'role': what there is, is "),
    ({"roles": [1]}, "cannot be read: Expected `object`, got `int`"),
    ({"roles": "x"}, "cannot be read: Expected `array`, got `str`"),
    ({"introspect": "x"}, "cannot be read: Invalid enum value 'x'"),
    ({"introspect": "\ud800"}, "cannot be read: it has text that is no Unicode"),
])  # fmt: skip
def test_what_is_of_another_type_or_unknown_is_told(values: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_issuer({"name": "egi", "url": ISSUER.url, **values})
    assert refused.value.message.startswith(f"An issuer {message}")


@pytest.mark.parametrize(("other", "message"), [
    (replace(OPAQUE, url="https://b"), "Two issuers are named egi"),
    (replace(OPAQUE, name=IssuerName("b")), f"Two issuers have the url {ISSUER.url}"),
    (replace(OPAQUE, name=IssuerName("b"), url="https://b"), "Two issuers would be asked about opaque tokens: egi"),
    (
        replace(OPAQUE, name=IssuerName("b"), url="https://b", introspect="always"),
        "Two issuers would be asked about opaque tokens: egi",
    ),
])  # fmt: skip
def test_issuers_are_told_apart_by_name_and_url_and_one_takes_opaque_tokens(other: Issuer, message: str) -> None:
    check_together([OPAQUE, replace(ISSUER, name=IssuerName("b"), url="https://b")])
    with pytest.raises(InvalidInput) as refused:
        check_together([OPAQUE, other])
    assert refused.value.message.startswith(message)


ONE = '[[issuer]]\nname = "a"\nurl = "https://a.example"\nclients = ["app"]\n'


def write_issuers(folder: Path, text: str) -> str:
    path = folder / "issuers.toml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return str(path)


def test_a_file_has_issuers_and_what_their_entitlements_mean(tmp_path: Path) -> None:
    example = "\n".join(line[4:] for line in (rules.__doc__ or "").splitlines() if line.startswith("    "))

    assert read_issuers(write_issuers(tmp_path, f"{example}\n{ONE}")) == (
        Issuer(
            IssuerName("egi"), "https://aai.egi.eu/auth/realms/egi", audiences=("ams",), create_users=True,
            roles=(RoleRule("urn:mace:egi.eu:group:monitoring.egi.eu:role=publisher", "MONITORING", ("publisher",)),),
        ),
        Issuer(IssuerName("a"), "https://a.example", clients=("app",)),
    )  # fmt: skip


@pytest.mark.parametrize(("text", "message"), [
    ("[[issuer]", "Expected"), ("\udcff", "no text in UTF-8"),
    ("issuer = 1", r"it has tables \[\[issuer\]\], and nothing else"),
    ("issuer = [1]", r"it has tables \[\[issuer\]\]"), ("[[issuers]]", r"it has tables \[\[issuer\]\]"),
    ("[[issuer]]\nurl = 'x'", "issuer 1: An issuer cannot be read: Object missing required field `name`"),
    (ONE + "[[issuer]]\nname = 'b'\nurl = 'x'", "issuer b: An issuer's url is https://HOST"),
    (ONE + "audience = 'x'", "issuer a: An issuer has no 'audience'"), (ONE + ONE, "Two issuers are named a"),
    ("a = " + "[" * 5000, ""),
])  # fmt: skip
def test_what_cannot_be_in_the_file_stops_the_start(tmp_path: Path, text: str, message: str) -> None:
    assert read_issuers(write_issuers(tmp_path, "# none yet\n")) == ()
    with pytest.raises(BadSettings, match="No such file"):
        read_issuers(str(tmp_path / "none.toml"))
    path = write_issuers(tmp_path, text)

    with pytest.raises(BadSettings, match=f"^issuers_file {re.escape(path)}: .*{message}"):
        read_issuers(path)


EGI = "urn:mace:egi.eu"


@pytest.mark.parametrize(("text", "meaning"), [
    (f"{EGI}:group:vo.example", Entitlement(EGI, ("vo.example",))),
    (f"{EGI}:group:vo:sub:inner", Entitlement(EGI, ("vo", "sub", "inner"))),
    (f"{EGI}:group:vo:role=member", Entitlement(EGI, ("vo",), "member")),
    (f"{EGI}:group:vo#aai.egi.eu", Entitlement(EGI, ("vo",), None, "aai.egi.eu")),
    (f"{EGI}:group:vo:sub:role=m#a:b/c?d", Entitlement(EGI, ("vo", "sub"), "m", "a:b/c?d")),
    (f"{EGI}:res:more:group:vo", Entitlement(f"{EGI}:res:more", ("vo",))),
    ("urn:geant:group:group:vo", Entitlement("urn:geant:group", ("vo",))),
    (f"{EGI}:group:group:group", Entitlement(EGI, ("group", "group"))),
    (f"{EGI}:group:Registered+User", Entitlement(EGI, ("Registered+User",))),
])  # fmt: skip
def test_an_entitlement_says_group_role_and_authority(text: str, meaning: Entitlement) -> None:
    assert read_entitlement(text) == meaning


@pytest.mark.parametrize(("one", "other"), [
    ("UrN:NiD:ExAmPlE.oRg:group:Minun%20Ryhm%c3%a4ni", "urn:nid:example.org:group:Minun%20Ryhm%C3%A4ni"),
    (f"{EGI}:group:vo:role=a%2fb#x%3a", f"{EGI}:group:vo:role=a%2Fb#x%3A"),
])  # fmt: skip
def test_case_of_the_namespace_and_of_encodings_does_not_matter(one: str, other: str) -> None:
    assert read_entitlement(one) == read_entitlement(other) is not None


@pytest.mark.parametrize(("one", "other"), [
    (f"{EGI}:group:vo", f"{EGI}:group:VO"), (f"{EGI}:group:vo:role=m", f"{EGI}:group:vo:role=M"),
    (f"{EGI}:group:vo#a", f"{EGI}:group:vo#A"), (f"{EGI}:group:A", f"{EGI}:group:%41"),
    (f"{EGI}:group:a:b", f"{EGI}:group:a%3Ab"),
])  # fmt: skip
def test_case_of_anything_else_and_encoding_matter(one: str, other: str) -> None:
    assert read_entitlement(one) != read_entitlement(other)


@pytest.mark.parametrize("text", [
    "", "admin", "group:vo", "urn:mace:group:vo", f"{EGI}:group", f"{EGI}:group:", f"{EGI}:group:vo:",
    f"{EGI}:group::vo", f"{EGI}:groups:vo", f"{EGI}:GROUP:vo", f"{EGI}:group:role=x", f"{EGI}:group:vo:role=",
    f"{EGI}:group:vo:role=a:role=b", f"{EGI}:group:vo:role=a:sub", f"{EGI}:group:vo#", f"{EGI}:group:vo#a#b",
    f"{EGI}:group:my vo", f"{EGI}:group:vo%2", f"{EGI}:group:vo%zz", f"{EGI}:group:v\u00f6", f"{EGI}:group:vo\n",
    f" {EGI}:group:vo", f"{EGI}:group:vo?+r", f"{EGI}:group:vo#\u00e4", "urn:x:y:group:vo", "urn:-ab:y:group:vo",
    "https://x.example/group:vo", f"{EGI}:group:vo\x00", f"{EGI}:group:\ud800",
    f"{EGI}:group:{'a' * MAX_ENTITLEMENT_LENGTH}",
])  # fmt: skip
def test_what_is_no_entitlement_is_none(text: str) -> None:
    assert read_entitlement(text) is None


def test_who_has_a_role_under_an_authority_has_what_says_less() -> None:
    entitlement = Entitlement(EGI, ("vo",), "member", "aai")

    assert set(entitlement.implied_entitlements()) == {
        entitlement, Entitlement(EGI, ("vo",), "member"), Entitlement(EGI, ("vo",), None, "aai"),
        Entitlement(EGI, ("vo",)),
    }  # fmt: skip
