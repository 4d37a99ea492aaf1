"""Keys as issuers publish them: which are taken, and what is said of the rest."""

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.identity.discovery import IssuerFailed
from ams.identity.jwks import KeySet

CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def made(key: object, algorithm: str, **more: Any) -> dict[str, Any]:
    """Return a public key as a JSON Web Key, made by PyJWT."""
    return {**jwt.get_algorithm_by_name(algorithm).to_jwk(key, as_dict=True), **more}


def of_curve(algorithm: str, **more: Any) -> dict[str, Any]:
    return made(ec.generate_private_key(CURVES[algorithm]).public_key(), algorithm, **more)


GOOD = of_curve("ES256", kid="good", use="sig", alg="ES256")


def read(*keys: object) -> KeySet:
    return KeySet.read(json.dumps({"keys": keys}).encode())


def ids(*keys: object) -> list[str | None]:
    return [key.kid for key in read(*keys).keys]


@pytest.mark.parametrize("algorithm", CURVES)
def test_a_key_of_a_curve_is_for_the_algorithm_of_the_curve_alone(algorithm: str) -> None:
    (key,) = read(of_curve(algorithm, kid="k")).keys

    assert [each for each in ("RS256", *CURVES, "EdDSA", "HS256", "none", "ES256K") if key.suits(each)] == [algorithm]


def test_an_rsa_key_is_for_all_of_rsa_unless_it_says_for_which(rsa_key: rsa.RSAPublicKey) -> None:
    any_key, one_key = read(made(rsa_key, "RS256", kid="a"), made(rsa_key, "RS256", kid="b", alg="PS384")).keys
    algorithms = [f"{kind}S{bits}" for kind in "RPEH" for bits in (256, 384, 512)]

    assert [each for each in algorithms if any_key.suits(each)] == algorithms[:6]
    assert [each for each in algorithms if one_key.suits(each)] == ["PS384"]


@pytest.mark.parametrize("key", [ed25519.Ed25519PrivateKey.generate(), ed448.Ed448PrivateKey.generate()])
def test_edwards_keys_are_taken(key: ed25519.Ed25519PrivateKey) -> None:
    (taken,) = read(made(key.public_key(), "EdDSA")).keys

    assert taken.kid is None
    assert taken.suits("EdDSA")
    jwt.decode(jwt.encode({}, key, "EdDSA"), taken.usable("EdDSA"), ["EdDSA"])


@pytest.mark.parametrize(
    "other",
    [
        {"use": "enc"}, {"key_ops": ["encrypt"]}, {"key_ops": "verify"}, {"kty": "XYZ"}, {"kty": None},
        {"kty": "EC", "crv": "secp256k1"}, {"kty": "OKP", "crv": "X25519"}, {"use": ["sig"]},
    ],
)  # fmt: skip
def test_keys_for_something_else_are_left_out_without_a_word(other: dict[str, Any]) -> None:
    found = read({**GOOD, "kid": "other", **other}, GOOD)

    assert [key.kid for key in found.keys] == ["good"]
    assert found.oddities == ()


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"kty": "oct", "kid": "o", "k": "c2VjcmV0"}, "key o is left out: it is symmetric"),
        ({**GOOD, "kid": "o", "k": "c2VjcmV0"}, "key o is left out: it is symmetric"),
        ({**GOOD, "kid": "o", "d": "AQAB"}, "key o is left out: it is private"),
        ({**GOOD, "kid": "o", "alg": "HS256"}, "key o is left out: it is for HS256"),
        ({**GOOD, "kid": "o", "alg": "none"}, "key o is left out: it is for none"),
        ({**GOOD, "kid": "o", "alg": "ES384"}, "key o is left out: it is for ES384"),
        ({**GOOD, "kid": "o", "alg": 7}, "key o is left out: it is malformed"),
        ({**GOOD, "kid": "o", "x": GOOD["y"]}, "key o is left out: it is malformed"),
        ({**GOOD, "kid": "o", "y": None}, "key o is left out: it is malformed"),
        ({**GOOD, "kid": "o", "x": "A" * 100_000}, "key o is left out: it is malformed"),
        ({**GOOD, "kid": 5}, "key 1 is left out: it is malformed"),
        ({**GOOD, "kid": "x" * 256}, "key 1 is left out: it is malformed"),
        ({**GOOD, "kid": "o\x1b[2J"}, "key 1 is left out: it is malformed"),
        ({**GOOD, "kid": "o", "alg": "\r\n"}, "key o is left out: it is malformed"),
        ("text", "key 1 is left out: it is malformed"),
        ({"kty": "RSA", "kid": "o", "n": "A" * 2000, "e": "AQAB"}, "key o is left out: it is malformed"),
        ({"kty": "RSA", "kid": "o", "n": "_" * 171, "e": "AQAB"}, "key o is left out: it has 1024 bits"),
        ({"kty": "RSA", "kid": "o", "n": "_" * 342, "e": "_" * 340}, "key o is left out: its exponent has 2040 bits"),
        ({"kty": "RSA", "kid": "o", "n": "_" * 342, "e": "AQAAAAE"}, "key o is left out: its exponent has 33 bits"),
        ({"kty": "RSA", "kid": "o", "n": "_" * 2000, "e": "AQAB"}, "key o is left out: it has 12000 bits"),
    ],
)
def test_odd_keys_are_left_out_and_said(odd: object, said: str) -> None:
    found = read(odd, GOOD)

    assert [key.kid for key in found.keys] == ["good"]
    assert found.oddities == (said,)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<html></html>", "its key set is no JSON object"),
        (b"{}", "its key set has no keys"),
        (b'{"keys": {}}', "its key set has no keys"),
        (b'{"keys": []}', "its key set has no key that signs tokens"),
        (b'{"keys": [{"kty": "oct", "k": ""}]}', "no key that signs tokens; key 1 is left out: it is symmetric"),
        (json.dumps({"keys": [GOOD] * 101}).encode(), "its key set has more than 100 keys"),
    ],
)
def test_a_set_without_a_key_to_use_is_an_error(data: bytes, said: str) -> None:
    with pytest.raises(IssuerFailed, match=said):
        KeySet.read(data)


def test_what_is_published_again_is_the_same_without_what_is_not_used() -> None:
    (key,) = read({**GOOD, "x5c": ["..."]}).keys

    assert key.published() == {name: GOOD[name] for name in ("kty", "crv", "x", "y", "kid", "alg")}
    assert read(key.published(), GOOD).keys == (key,)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from([*GOOD, "n", "e", "k", "d", "key_ops"])
VALUES = st.sampled_from([*GOOD.values(), "RSA", "OKP", "Ed25519", "oct", "P-384", "RS256", ["verify"]])


@settings(max_examples=25, deadline=None)
@given(st.lists(JSON | st.dictionaries(NAMES, VALUES | JSON, max_size=6), max_size=4))
def test_whatever_is_in_a_set_reading_it_ends_well_or_in_the_one_error(found: list[Any]) -> None:
    try:
        keys = KeySet.of(found).keys
    except IssuerFailed:
        return
    assert all(any(key.suits(each) for each in ("RS256", "ES256", "ES384", "EdDSA")) for key in keys)


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPublicKey:
    return rsa.generate_private_key(65537, 2048).public_key()
