"""Tokens that programs sign themselves: docs/reference/tokens.md."""

import pytest

from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import TokenRefused
from ams.core.names import TokenName
from ams.core.public_keys import client_email
from ams.identity import self_signed
from ams.identity.self_signed import NamedKey
from tests.identity import signing
from tests.support.program_keys import AUDIENCE, SCOPE, private_key, public_key, public_pem, signed

NOW = ManualClock().now // 1000
LEEWAY = 30
EMAIL = client_email(TokenName("ci"), public_key().id)
SAID = {"iss": EMAIL, "sub": EMAIL, "aud": AUDIENCE, "iat": NOW, "exp": NOW + 3600}
BY_PUBLIC_HALF = signing.signed_by_secret(public_pem().encode(), SAID, kid=public_key().id)


def expiry(token: str, now: float = NOW) -> int:
    return self_signed.expiry(token, public_key(), EMAIL, now=Milliseconds(int(now * 1000)), leeway=LEEWAY)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": AUDIENCE},
        {"aud": AUDIENCE.rstrip("/")},
        {"aud": [AUDIENCE]},
        {"aud": "", "scope": SCOPE},
        {"aud": None, "scope": "https://www.googleapis.com/auth/pubsub"},
        {"aud": AUDIENCE, "scope": SCOPE},
        {"exp": NOW + 60},
        {"iat": NOW - 3000, "exp": NOW + 600},
    ],
    ids=["Python", "no slash", "list", "Go", "Node", "both", "short", "old"],
)
def test_what_the_libraries_sign_is_good_until_it_expires(claims: dict[str, object]) -> None:
    ends = {"exp": NOW + 3600, **claims}["exp"]

    assert isinstance(ends, int)
    assert expiry(signed(NOW, **claims)) == (ends + LEEWAY) * 1000


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
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
        ({"by": private_key("two")}, "The token's signature is wrong"),
        ({"algorithm": "RS512"}, "The token's key is not one for RS512"),
        ({"algorithm": "PS256"}, "The token's key is not one for PS256"),
        ({"algorithm": "ES256", "by": signing.private_key()}, "The token's key is not one for ES256"),
    ],
)
def test_anything_else_is_refused_with_the_reason(claims: dict[str, object], reason: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        expiry(signed(NOW, **claims))  # type: ignore[arg-type]  # claims are of any type

    assert refused.value.message.startswith(reason)


def test_a_signature_that_anybody_could_make_is_none() -> None:
    none = signed(NOW).rpartition(".")[0] + "."
    header = signing.base64url(b'{"alg":"none","kid":"%b"}' % public_key().id.encode())
    unsigned = f"{header}.{none.split('.')[1]}."

    with pytest.raises(TokenRefused, match="signature is wrong"):
        expiry(none)
    with pytest.raises(TokenRefused, match="The token is not signed"):
        expiry(unsigned)
    with pytest.raises(TokenRefused, match="signed in a way that is not accepted here: HS256"):
        expiry(BY_PUBLIC_HALF)


def test_the_key_that_a_token_names_is_told_from_those_of_issuers() -> None:
    ours = public_key().id

    assert self_signed.named_key(signed(NOW)) == NamedKey(ours, is_ours=True)
    assert self_signed.named_key(signed(NOW, iss="https://issuer.example")) == NamedKey(ours, is_ours=False)
    for other in ("", "opaque", "a.b.c", signing.signed(), signing.signed(kid="rsa-1"), BY_PUBLIC_HALF):
        assert self_signed.named_key(other) is None
