"""Tokens of issuers, and tokens signed by programs: which are valid, and the refusal of each invalid one."""

import itertools
import json
import sys
from dataclasses import replace
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.clock import Milliseconds
from ams.core.errors import TokenRefused
from ams.core.issuer import Issuer
from ams.core.names import TokenName
from ams.core.public_keys import client_email
from ams.identity import self_signed, tokens
from ams.identity.self_signed import NamedKey
from tests.identity.signing import (
    ISSUER,
    NOW,
    SAID,
    base64url,
    private_key,
    public_key,
    put_together,
    sign_claims,
    signed_by_secret,
)
from tests.support import program_keys
from tests.support.program_keys import AUDIENCE, SCOPE, public_pem

NOT_ACCEPTED = "The token is signed in a way that is not accepted here"
CRITICAL = "The token has critical parameters that are not understood here"


def claims(token: str, issuer: Issuer = ISSUER, key: jwt.PyJWK | None = None, now: float = NOW) -> Any:
    assert tokens.header(token).issuer_url
    milliseconds = Milliseconds(round(now * 1000))
    return tokens.claims(token, issuer, key or public_key(), now=milliseconds, leeway=30)


def refusal(token: str, issuer: Issuer = ISSUER, key: jwt.PyJWK | None = None, now: float = NOW) -> str:
    with pytest.raises(TokenRefused) as refused:
        claims(token, issuer, key, now)
    assert not refused.value.later
    assert all(part not in refused.value.message for part in token.split(".") if len(part) > 8)
    return refused.value.message


@pytest.mark.parametrize("algorithm", sorted(tokens.ALGORITHMS))
def test_a_token_says_what_it_says_whatever_public_key_it_is_signed_with(algorithm: str) -> None:
    token = sign_claims(SAID, algorithm, kid="k1")
    assert tokens.header(token) == tokens.TokenHeader(algorithm, "k1", ISSUER.url)
    assert claims(token, key=public_key(algorithm)) == SAID


@pytest.mark.parametrize("kind", [None, "JWT", "at+jwt", "application/at+jwt", "AT+JWT"])
def test_a_token_may_be_of_these_types(kind: str | None) -> None:
    assert claims(sign_claims(SAID, typ=kind)) == SAID


def test_where_else_a_key_might_be_is_not_looked_at() -> None:
    other = public_key(private=ec.generate_private_key(ec.SECP256R1()))._jwk_data
    assert claims(sign_claims(SAID, jku="http://evil.example", jwk=other, x5u="http://evil.example", x5c=["x"])) == SAID


def test_a_token_that_is_not_signed_is_refused() -> None:
    payload = base64url(json.dumps(SAID).encode())
    for name in ("none", "None", "NONE"):
        for signature in ("", base64url(bytes(64))):
            token = f"{base64url(json.dumps({'alg': name}).encode())}.{payload}.{signature}"
            assert refusal(token) == "The token is not signed"


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_token_signed_with_the_public_key_as_a_secret_is_refused(algorithm: str) -> None:
    secret = private_key().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert refusal(signed_by_secret(secret, SAID, algorithm)) == f"{NOT_ACCEPTED}: {algorithm}"


@pytest.mark.parametrize(("header", "message"), [
    ({"alg": "ES256K"}, f"{NOT_ACCEPTED}: ES256K"),
    ({"alg": 'a"b\\c\u00e9\n' + "x" * 200}, f"{NOT_ACCEPTED}: a?b?c??{'x' * 93}"),
    ({"alg": "es256"}, f"{NOT_ACCEPTED}: es256"), ({"alg": ["ES256"]}, "The token does not say how it is signed"),
    ({"alg": None}, "The token does not say how it is signed"), ({}, "The token does not say how it is signed"),
    ({"alg": "ES384"}, "The token's key is not one for ES384"),
    ({"alg": "ES256", "crit": ["exp"], "exp": 1}, CRITICAL), ({"alg": "ES256", "crit": []}, CRITICAL),
    ({"alg": "ES256", "b64": False}, CRITICAL),
    ({"alg": "ES256", "typ": "dpop+jwt"}, "The token is of a type that is not for services"),
    ({"alg": "ES256", "typ": 1}, "The token is of a type that is not for services"),
    ({"alg": "ES256", "kid": 7}, "The token's kid cannot be read"),
    ({"alg": "ES256", "kid": "a\nb"}, "The token's kid cannot be read"),
    ({"alg": "ES256", "kid": ""}, "The token's kid cannot be read"),
])  # fmt: skip
def test_a_header_that_says_what_cannot_be_is_refused(header: dict[str, object], message: str) -> None:
    assert refusal(put_together(json.dumps(header).encode(), json.dumps(SAID).encode())) == message


@pytest.mark.parametrize(("change", "message"), [
    ({"iss": ...}, "The token does not say who issued it"),
    ({"sub": ...}, "The token does not say whose it is"),
    ({"exp": ...}, "The token does not say when it expires"),
    ({"aud": ...}, "The token is for another audience: none"),
    ({"iss": "https://other.example"}, "The token is of another issuer"),
    ({"iss": ISSUER.url + "/"}, "The token is of another issuer"),
    ({"iss": None}, "The token does not say who issued it"),
    ({"iss": [ISSUER.url]}, "The token does not say who issued it"),
    ({"iss": ""}, "The token does not say who issued it"),
    ({"iss": "x" * 3000}, "The token does not say who issued it"),
    *(
        ({"sub": value}, "The token does not say whose it is")
        for value in [None, "", 7, ["alice"], {"a": 1}, "a\x00", "\ud800", "x" * 256]
    ),
    ({"aud": "other"}, "The token is for another audience: other"),
    ({"aud": ["a", "b"]}, "The token is for another audience: a, b"),
    ({"aud": []}, "The token is for another audience: none"),
    ({"aud": "\u00e9" * 200}, "The token is for another audience: " + "?" * 100),
    *(({"aud": value}, "The token's aud cannot be read") for value in [None, 7, {"ams": 1}, ["ams", 7], [["ams"]]]),
    ({"exp": NOW - 30}, "The token has expired"),
    ({"exp": 0}, "The token has expired"),
    *(
        ({name: value}, f"The token's {name} is no time")
        for name in ("exp", "nbf", "iat")
        for value in [None, "1", str(NOW + 60), True, -1, 10**13, 10**400, 1e300, [NOW], {}, ""]
    ),
    ({"nbf": NOW + 31}, "The token is not good yet"),
    ({"nbf": NOW + 30.5}, "The token is not good yet"),
    ({"iat": NOW + 31}, "The token was issued in the future: the issuer's clock and the service's differ"),
])  # fmt: skip
def test_a_token_that_says_what_does_not_do_is_refused(change: dict[str, object], message: str) -> None:
    said = {**SAID, **change}
    assert refusal(sign_claims({name: value for name, value in said.items() if value is not ...})) == message


@pytest.mark.parametrize(
    "change", [{"exp": NOW - 29}, {"exp": NOW + 0.5}, {"nbf": NOW + 30}, {"iat": NOW + 30}, {"aud": ["x", "ams"]}]
)
def test_clocks_may_differ_by_the_leeway_and_times_have_fractions(change: dict[str, object]) -> None:
    said = {**SAID, **change}
    assert claims(sign_claims(said)) == said
    assert tokens.expiry(said, 30) == int((said["exp"] + 30) * 1000)
    assert tokens.expiry({}, 30) is None


@pytest.mark.parametrize(("name", "said"), [("azp", "app"), ("client_id", "app"), ("azp", "other"), ("azp", ["app"])])
def test_a_token_is_for_a_client_where_the_issuer_has_clients(name: str, said: object) -> None:
    issuer = replace(ISSUER, clients=("app",))
    token = sign_claims({**SAID, name: said})
    if said == "app":
        assert claims(token, issuer)[name] == "app"
        assert refusal(sign_claims({**SAID, name: said, "aud": "x"}), issuer) == "The token is for another audience: x"
        assert claims(sign_claims({"aud": "x", **token_of(name)}), replace(issuer, audiences=()))
    else:
        assert refusal(token, issuer).startswith("The token was issued to another client: ")


def token_of(name: str) -> dict[str, object]:
    return {key: value for key, value in SAID.items() if key != "aud"} | {name: "app"}


def test_a_token_of_another_key_is_refused() -> None:
    other = public_key(private=ec.generate_private_key(ec.SECP256R1()))
    assert refusal(sign_claims(), key=other) == "The token's signature is wrong"


def test_a_token_that_somebody_made_up_costs_little_however_long_it_is() -> None:
    """Measured in function calls instead of time: some for each token, and none for each character."""
    short, long = (calls_to_refuse({**SAID, "fill": "x" * length}) for length in (10, 11_000))
    assert long - short < 100


def calls_to_refuse(said: dict[str, object]) -> int:
    token, other = sign_claims(said), public_key(private=ec.generate_private_key(ec.SECP256R1()))
    calls = itertools.count()
    sys.setprofile(lambda _frame, event, _argument: next(calls) if event == "call" else None)
    try:
        claims(token, key=other)
    except TokenRefused:
        pass
    finally:
        sys.setprofile(None)
    return next(calls)


def test_a_key_that_is_too_short_is_refused() -> None:
    weak = rsa.generate_private_key(65537, 1024)
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = jwt.encode(dict(SAID), weak, "RS256")
    assert refusal(token, key=public_key("RS256", weak)) == "The token's key is too short, or not one for RS256"


@pytest.mark.parametrize("payload", [
    b"", b"[]", b"1", b'"text"', b"null", b"{", b"\xff", b"\x00\xff", b"\xef\xbb\xbf{}", b"{}{}", b'{"exp":NaN}',
    b'{"exp":Infinity}', b'{"sub":"a","sub":"b"}', b'{"a":{"b":1,"b":1}}', "{}".encode("utf-16"),
    b'{"exp":' + b"9" * 5000 + b"}", b'{"a":' + b"[" * 6000 + b"]" * 6000 + b"}", b'{"a":' * 2000,
])  # fmt: skip
def test_what_is_no_json_object_or_says_a_name_twice_is_refused(payload: bytes) -> None:
    assert refusal(put_together(b'{"alg":"ES256"}', payload)) == "The token is no JWT: its payload is no JSON object"
    assert refusal(put_together(payload, json.dumps(SAID).encode())) == (
        "The token is no JWT: its header is no JSON object"
    )


@pytest.mark.parametrize(("token", "message"), [
    ("", "The token is no JWT"), ("a.b", "The token is no JWT"), ("a.b.c.d.e", "The token is no JWT"),
    ("..", "The token is no JWT: its header is no JSON object"),
    ("a.b.c", "The token is no JWT: its header is not base64url"),
    ("\u00e9.\ud800.\x00", "The token is no JWT: its header is not base64url"),
    ("a" * (tokens.MAX_TOKEN_CHARACTERS + 1), "The token is longer than 16384 characters"),
])  # fmt: skip
def test_what_is_no_jwt_is_refused(token: str, message: str) -> None:
    assert refusal(token) == message


def test_a_token_may_be_as_long_as_the_limit_and_no_longer() -> None:
    fill = (tokens.MAX_TOKEN_CHARACTERS - len(sign_claims({**SAID, "fill": ""}))) * 3 // 4 - 6
    fits = sign_claims({**SAID, "fill": "x" * fill})

    assert tokens.MAX_TOKEN_CHARACTERS - 12 < len(fits) <= tokens.MAX_TOKEN_CHARACTERS
    assert claims(fits)["sub"] == "alice"
    assert refusal(sign_claims({**SAID, "fill": "x" * (fill + 12)})) == "The token is longer than 16384 characters"


@pytest.mark.parametrize("change", ["{}=", "{}==", "{} ", " {}", "{}\n"])
def test_base64_is_written_in_the_one_right_way(change: str) -> None:
    header, payload, signature = sign_claims().split(".")

    for token in (f"{change.format(header)}.{payload}.{signature}", f"{header}.{change.format(payload)}.{signature}",
                  f"{header}.{payload}.{change.format(signature)}"):  # fmt: skip
        assert "is not base64url" in refusal(token)


def test_bits_that_stand_for_nothing_are_not_changed() -> None:
    """Otherwise the same token would have another text, and another hash."""
    token = sign_claims(SAID, "RS256")
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    other = token[:-1] + letters[letters.index(token[-1]) + 1]
    assert refusal(other, key=public_key("RS256")) == "The token is no JWT: its signature is not base64url"


TOKEN = sign_claims({**SAID, "email": "alice@example.org"}, kid="k1")
CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=+/ \u00e9"


@settings(max_examples=150)
@given(st.integers(0, len(TOKEN) - 1), st.sampled_from(CHARACTERS))
def test_a_token_with_one_character_changed_is_refused(place: int, character: str) -> None:
    changed = TOKEN[:place] + character + TOKEN[place + 1 :]
    if changed != TOKEN:
        refusal(changed)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
                    max_leaves=5)  # fmt: skip


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["iss", "sub", "aud", "exp", "nbf", "iat", "azp"]), JSON), JSON, JSON)
def test_whatever_an_issuer_signs_is_believed_or_refused(change: dict[str, Any], kid: Any, kind: Any) -> None:
    header = {"alg": "ES256", "kid": kid, "typ": kind} if kid is not None else {"alg": "ES256"}
    token = put_together(json.dumps(header).encode(), json.dumps({**SAID, **change}).encode())
    try:
        said = claims(token)
    except TokenRefused as refused:
        assert refused.message.isascii()
        assert refused.message.isprintable()
    else:
        assert said["iss"] == ISSUER.url


LEEWAY = 30
EMAIL = client_email(TokenName("ci"), program_keys.public_key().id)
SIGNED_BY_PROGRAM = {"iss": EMAIL, "sub": EMAIL, "aud": AUDIENCE, "iat": NOW, "exp": NOW + 3600}
BY_PUBLIC_HALF = signed_by_secret(public_pem().encode(), SIGNED_BY_PROGRAM, kid=program_keys.public_key().id)


def expiry(token: str, now: float = NOW) -> int:
    return self_signed.expiry(token, program_keys.public_key(), EMAIL, now=Milliseconds(int(now * 1000)), leeway=LEEWAY)


@pytest.mark.parametrize("claims", [
    {"aud": AUDIENCE}, {"aud": AUDIENCE.rstrip("/")}, {"aud": [AUDIENCE]}, {"aud": "", "scope": SCOPE},
    {"aud": None, "scope": "https://www.googleapis.com/auth/pubsub"}, {"aud": AUDIENCE, "scope": SCOPE},
    {"exp": NOW + 60}, {"iat": NOW - 3000, "exp": NOW + 600},
], ids=["Python", "no slash", "list", "Go", "Node", "both", "short", "old"])  # fmt: skip
def test_what_the_libraries_sign_is_good_until_it_expires(claims: dict[str, object]) -> None:
    ends = {"exp": NOW + 3600, **claims}["exp"]
    assert isinstance(ends, int)
    assert expiry(program_keys.sign_token(NOW, **claims)) == (ends + LEEWAY) * 1000


@pytest.mark.parametrize(("claims", "reason"), [
    ({"iss": "ci@example.org"}, "The token's iss is not the client_email of its key"),
    ({"sub": "ci@example.org"}, "The token's sub is not its iss"),
    ({"sub": None}, "The token does not say whose it is"),
    ({"exp": None}, "The token does not say when it expires"),
    ({"iat": None}, "The token does not say when it was made"),
    ({"exp": NOW + 3600 + LEEWAY + 1}, "The token is good for longer than 3600 seconds"),
    ({"iat": NOW - 3600, "exp": NOW - LEEWAY}, "The token has expired"),
    ({"iat": NOW + 3600, "exp": NOW + 7200}, "The token was issued in the future"),
    ({"aud": "https://oauth2.googleapis.com/token"}, "The token is for another audience: https://oauth2"),
    ({"aud": [AUDIENCE, "https://example.org"]}, "The token is for another audience: "),
    ({"aud": 5}, "The token's aud cannot be read"),
    ({"aud": ""}, "The token is not for Pub/Sub: neither its aud nor its scope says so"),
    ({"aud": None, "scope": "https://www.googleapis.com/auth/bigquery"}, "The token is not for Pub/Sub"),
    ({"aud": None, "scope": [SCOPE]}, "The token is not for Pub/Sub"),
    ({"by": program_keys.private_key("two")}, "The token's signature is wrong"),
    ({"algorithm": "RS512"}, "The token's key is not one for RS512"),
    ({"algorithm": "PS256"}, "The token's key is not one for PS256"),
    ({"algorithm": "ES256", "by": private_key()}, "The token's key is not one for ES256"),
])  # fmt: skip
def test_anything_else_is_refused_with_the_reason(claims: dict[str, object], reason: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        expiry(program_keys.sign_token(NOW, **claims))  # type: ignore[arg-type]  # claims are of any type
    assert refused.value.message.startswith(reason)


def test_a_signature_that_anybody_could_make_is_none() -> None:
    none = program_keys.sign_token(NOW).rpartition(".")[0] + "."
    header = base64url(b'{"alg":"none","kid":"%b"}' % program_keys.public_key().id.encode())
    unsigned = f"{header}.{none.split('.')[1]}."

    with pytest.raises(TokenRefused, match="signature is wrong"):
        expiry(none)
    with pytest.raises(TokenRefused, match="The token is not signed"):
        expiry(unsigned)
    with pytest.raises(TokenRefused, match="signed in a way that is not accepted here: HS256"):
        expiry(BY_PUBLIC_HALF)


def test_the_key_that_a_token_names_is_told_from_those_of_issuers() -> None:
    ours = program_keys.public_key().id

    assert self_signed.named_key(program_keys.sign_token(NOW)) == NamedKey(ours, is_ours=True)
    assert self_signed.named_key(program_keys.sign_token(NOW, iss="https://issuer.example")) == NamedKey(
        ours, is_ours=False
    )
    for other in ("", "opaque", "a.b.c", sign_claims(), sign_claims(kid="rsa-1"), BY_PUBLIC_HALF):
        assert self_signed.named_key(other) is None
