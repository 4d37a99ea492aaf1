"""Issuers: what can be said of one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.access.permissions import PROJECT_ROLES
from ams.core import issuer as rules
from ams.core.errors import InvalidInput
from ams.core.issuer import Issuer, RoleRule, check_together, checked, read_issuer
from ams.core.names import IssuerName

VO = "urn:mace:egi.eu:group:vo"
ISSUER = Issuer(IssuerName("egi"), "https://aai.egi.eu/auth/realms/egi", audiences=("ams",))
OPAQUE = replace(ISSUER, introspect="opaque", client_id="ams", client_secret="s3cret")


def test_rules_give_the_roles_of_projects() -> None:
    assert rules.ROLES == PROJECT_ROLES


def test_a_secret_is_not_shown() -> None:
    assert "s3cret" not in repr(OPAQUE)


@pytest.mark.parametrize(
    "issuer",
    [
        ISSUER,
        OPAQUE,
        replace(ISSUER, url="http://127.0.0.1:8080/"),
        replace(ISSUER, url="https://[::1]:8443"),
        replace(ISSUER, audiences=(), clients=("app",)),
        replace(ISSUER, jwks_url="https://keys.example/jwks?realm=a", introspection_url="http://x.example/i"),
        replace(ISSUER, create_users=True, roles=(RoleRule(VO, "P", ("publisher", "consumer")),)),
    ],
)
def test_what_can_be_said_of_an_issuer_is_kept(issuer: Issuer) -> None:
    assert checked(issuer) == issuer


def test_what_is_listed_twice_is_listed_once() -> None:
    twice = replace(
        ISSUER,
        audiences=("a", "b", "a"),
        clients=("c", "c"),
        entitlement_claims=("e", "e"),
        roles=(RoleRule(VO, "P", ("publisher", "publisher")), RoleRule(VO, "P", ("publisher",))),
    )

    assert checked(twice) == replace(
        ISSUER,
        audiences=("a", "b"),
        clients=("c",),
        entitlement_claims=("e",),
        roles=(RoleRule(VO, "P", ("publisher",)),),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "Invalid issuer name"),
        ({"name": "a b"}, "Invalid issuer name"),
        ({"name": "a" * 101}, "Invalid issuer name"),
        *(
            ({"url": url}, "An issuer's url is https://HOST")
            for url in [
                "", "aai.egi.eu", "ldap://x", "https://", "https://x y", "https://x/#a", "https://x/?a", "https://u@x",
                "https://x:0", "https://x:99999", "https://[::1", "https://\u00e9.example", "https://x\\y", "https://x\n",
                "https://x/" + "a" * 2000,
            ]
        ),
        ({"jwks_url": "file:///etc"}, "An issuer's jwks_url is an https or http URL"),
        ({"introspection_url": "x"}, "An issuer's introspection_url is an https or http URL"),
        ({"audiences": ()}, "An issuer needs audiences or clients"),
        ({"audiences": ("",)}, "An issuer's audiences have 1 to 255 printable characters each"),
        ({"audiences": ("a" * 256,)}, "An issuer's audiences have 1 to 255"),
        ({"audiences": tuple(map(str, range(101)))}, "An issuer has at most 100 audiences"),
        ({"clients": ("a\x00",)}, "An issuer's clients have 1 to 255"),
        ({"entitlement_claims": tuple("abcdefghijk")}, "An issuer has at most 10 entitlement_claims"),
        ({"introspect": "sometimes"}, "An issuer's introspect is never, opaque or always"),
        ({"introspect": "always", "client_id": "a"}, "An issuer that is asked about tokens needs a client_id and a"),
        ({"introspect": "opaque", "client_secret": "a"}, "An issuer that is asked about tokens needs"),
        ({"client_id": "a\n"}, "An issuer's client_id has at most 255 printable characters"),
        ({"client_secret": "a" * 1001}, "An issuer's client_secret has at most 1000 printable characters"),
        ({"create_users": True}, "An issuer with create_users needs rules for roles"),
        ({"roles": (RoleRule("admin", "P", ("publisher",)),)}, "invalid entitlement: 'admin' is not urn:NID:"),
        ({"roles": (RoleRule(VO, "a/b", ("publisher",)),)}, "Invalid project name"),
        ({"roles": (RoleRule(VO, "P", ()),)}, "A rule for roles in P has none"),
        ({"roles": (RoleRule(VO, "P", ("service_admin",)),)}, "invalid role: service_admin"),
        ({"roles": (RoleRule(VO, "P", ("\ud800",)),)}, "invalid role"),
        ({"roles": (RoleRule(VO, "P", ("publisher",)),) * 101}, "An issuer has at most 100 rules for roles"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_of_an_issuer_is_told(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        checked(replace(ISSUER, **change))  # type: ignore[arg-type]
    assert refused.value.message.startswith(message)


def test_an_issuer_is_read_by_the_names_of_its_fields() -> None:
    assert read_issuer(
        {
            "name": "egi",
            "url": ISSUER.url,
            "audiences": ["ams"],
            "roles": [{"entitlement": VO, "project": "P", "roles": ["publisher"]}],
        }
    ) == replace(ISSUER, roles=(RoleRule(VO, "P", ("publisher",)),))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"url": ISSUER.url}, "An issuer cannot be read: Object missing required field `name`"),
        ({"name": "egi", "url": 1}, "An issuer cannot be read: Expected `str`, got `int` - at `$.url`"),
        ({"name": "egi", "url": ISSUER.url, "audiences": "ams"}, "An issuer cannot be read: Expected `array`"),
        ({"name": "egi", "url": ISSUER.url, "audience": ["ams"]}, "An issuer has no 'audience': what there is, is "),
        ({"name": "egi", "url": ISSUER.url, "roles": [{"role": 1}]}, "An issuer has no 'role': what there is, is "),
        ({"name": "egi", "url": ISSUER.url, "roles": [1]}, "An issuer cannot be read: Expected `object`, got `int`"),
        ({"name": "egi", "url": ISSUER.url, "roles": "x"}, "An issuer cannot be read: Expected `array`, got `str`"),
        ({"name": "egi", "url": ISSUER.url, "introspect": "x"}, "An issuer cannot be read: Invalid enum value 'x'"),
        (
            {"name": "egi", "url": ISSUER.url, "introspect": "\ud800"},
            "An issuer cannot be read: it has text that is no",
        ),
    ],
)
def test_what_is_of_another_type_or_unknown_is_told(values: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_issuer(values)
    assert refused.value.message.startswith(message)


WORDS = st.text(max_size=3) | st.sampled_from(
    [
        "roles",
        "introspect",
        "clients",
        "jwks_url",
        "client_secret",
        "create_users",
        "entitlement",
        "project",
        VO,
        "opaque",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100)
@given(st.dictionaries(WORDS, JSON, max_size=4))
def test_whatever_is_said_of_an_issuer_is_one_or_told(change: dict[str, object]) -> None:
    values = {"name": "egi", "url": ISSUER.url, "audiences": ["ams"], **change}
    try:
        issuer = read_issuer(values)
    except InvalidInput as error:
        assert error.message.encode()
    else:
        assert checked(issuer) == issuer


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(OPAQUE, url="https://b"), "Two issuers are named egi"),
        (replace(OPAQUE, name=IssuerName("b")), f"Two issuers have the url {ISSUER.url}"),
        (replace(OPAQUE, name=IssuerName("b"), url="https://b"), "Two issuers would be asked about opaque tokens: egi"),
        (
            replace(OPAQUE, name=IssuerName("b"), url="https://b", introspect="always"),
            "Two issuers would be asked about opaque tokens: egi",
        ),
    ],
)
def test_issuers_are_told_apart_by_name_and_url_and_one_takes_opaque_tokens(other: Issuer, message: str) -> None:
    check_together([OPAQUE, replace(ISSUER, name=IssuerName("b"), url="https://b")])

    with pytest.raises(InvalidInput) as refused:
        check_together([OPAQUE, other])
    assert refused.value.message.startswith(message)
