"""Rights, and public keys of named tokens (docs/reference/tokens.md)."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.core.names import TokenName
from ams.core.public_keys import PublicKey, client_email, is_client_email
from ams.core.rights import ANY, MAX_RIGHTS, PUBLISH, Right, allow, is_resource, validate
from tests.support.program_keys import private_key, private_pem, public_key, public_pem

GARDEN = {"project": "garden"}
READINGS = {"project": "garden", "topic": "readings"}
ACTIONS = ("topics:publish", "topics:show", "subscriptions:pull")
RIGHTS = st.builds(
    Right, st.sampled_from([ANY, *ACTIONS]),
    st.sampled_from([ANY, "projects/garden", "projects/garden/topics/readings", "projects/field"]),
)  # fmt: skip
NAMES = st.sampled_from([{}, GARDEN, READINGS, {"project": "field"}, {"project": "garden", "subscription": "readings"}])


@pytest.mark.parametrize(("resource", "names", "is_included"), [
    ("projects/garden/topics/readings", READINGS, True), ("projects/garden/topics/readings", GARDEN, False),
    ("projects/garden/topics/readings", {"project": "field", "topic": "readings"}, False),
    ("projects/garden/topics/read", READINGS, False),
    ("projects/garden/topics/readings", {"project": "garden", "subscription": "readings"}, False),
    ("projects/garden", READINGS, True), ("projects/garden", {"project": "garden2", "topic": "readings"}, False),
    ("projects/garden", {"user": "garden"}, False), (ANY, {"user": "alice"}, True), (ANY, {}, True),
])  # fmt: skip
def test_a_right_includes_all_that_it_names(resource: str, names: dict[str, str], is_included: bool) -> None:
    assert allow((Right("topics:publish", resource),), "topics:publish", names) is is_included
    assert not allow((Right("topics:show", resource),), "topics:publish", names)


@given(st.lists(RIGHTS, max_size=4), RIGHTS, st.sampled_from(ACTIONS), NAMES)
def test_a_right_more_takes_nothing_away(rights: list[Right], more: Right, action: str, names: dict[str, str]) -> None:
    assert not allow((), action, names)
    assert allow((*rights, more), action, names) == (
        allow(tuple(rights), action, names) or allow((more,), action, names)
    )


@pytest.mark.parametrize("resource", [
    "", "projects", "projects/", "projects/a b", "projects/p/", "projects/p/topics", "projects/p/topics/", "topics/t",
    "projects/p/things/t", "projects/p/topics/t/u", "projects/*", "/projects/p", "users/alice",
])  # fmt: skip
def test_what_is_no_resource_is_refused(resource: str) -> None:
    assert not is_resource(resource)
    with pytest.raises(InvalidInput, match="invalid resource"):
        validate([("topics:publish", resource)], ACTIONS)


def test_rights_are_of_known_actions_each_once_and_not_too_many() -> None:
    publish = ("topics:publish", "projects/p/topics/t")
    assert validate([publish, publish, (ANY, ANY)], ACTIONS) == (Right(*publish), Right(ANY, ANY))
    assert set(PUBLISH) <= set(ACTIONS)
    with pytest.raises(InvalidInput, match="invalid action: topics:eat"):
        validate([("topics:eat", ANY)], ACTIONS)
    with pytest.raises(InvalidInput, match="good for something"):
        validate([], ACTIONS)
    with pytest.raises(InvalidInput, match="at most"):
        validate([("topics:publish", f"projects/p/topics/t{n}") for n in range(MAX_RIGHTS + 1)], ACTIONS)


PEM, SPKI = Encoding.PEM, PublicFormat.SubjectPublicKeyInfo


def test_a_key_is_the_same_in_either_form_of_pem_and_has_the_same_id() -> None:
    pkcs1 = private_key().public_key().public_bytes(PEM, PublicFormat.PKCS1).decode()

    read = PublicKey.read(public_pem())

    assert read == PublicKey.read(pkcs1) == PublicKey.read(read.pem)
    assert read.pem == public_pem()
    assert len(read.id) == 40
    assert read.id != public_key("two").id


@pytest.mark.parametrize(
    "text",
    [
        "", "no key", "\ud800", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", private_pem(),
        public_pem() + "\n" * 9000,
        ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(PEM, SPKI).decode(),
        rsa.generate_private_key(65537, 1024).public_key().public_bytes(PEM, SPKI).decode(),
        rsa.generate_private_key(3, 2048).public_key().public_bytes(PEM, SPKI).decode(),
        rsa.RSAPublicNumbers(65537, (1 << 4096) + 1).public_key().public_bytes(PEM, SPKI).decode(),
    ],
    ids=["empty", "text", "half of a character", "damaged", "private", "long", "curve", "short", "exponent", "large"],
)  # fmt: skip
def test_what_is_no_such_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="^Invalid public_key: give an RSA key of 2048 to 4096 bits"):
        PublicKey.read(text)


def test_a_program_is_called_by_token_and_key() -> None:
    email = client_email(TokenName("ci"), "ab")
    assert email == "ci@ab.ams.invalid"
    assert is_client_email(email, "ab")
    assert not is_client_email(email, "b")
