"""The example issuer: what it gives people who ask by hand."""

from collections.abc import Iterator

import httpx
import jwt
import pytest

from demo.issuer import ALGORITHMS, CLIENT, CLIENT_SECRET, INTROSPECT, JWKS, TOKEN, ExampleIssuer


@pytest.fixture(scope="module")
def example() -> Iterator[ExampleIssuer]:
    with ExampleIssuer() as example:
        yield example


@pytest.fixture(scope="module")
def client(example: ExampleIssuer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=example.url, trust_env=False) as client:
        yield client


def claims(client: httpx.Client, token: str) -> dict[str, object]:
    """Return what a token says, its signature checked by the keys that are published."""
    keys = jwt.PyJWKSet.from_dict(client.get(JWKS).json())
    header = jwt.get_unverified_header(token)
    return jwt.decode(token, keys[header["kid"]], list(ALGORITHMS), audience="ams")


def test_a_token_is_text_for_who_names_a_subject(client: httpx.Client, example: ExampleIssuer) -> None:
    asked = {"subject": "alice", "entitlement": ["urn:a", "urn:b"], "lifetime": "60"}
    said = claims(client, client.get(TOKEN, params=asked).text.strip())

    assert (said["iss"], said["sub"], said["entitlements"]) == (example.url, "alice", ["urn:a", "urn:b"])
    assert said["exp"] - said["iat"] == 60


def test_a_client_gets_one_for_itself(client: httpx.Client) -> None:
    answer = client.post(TOKEN, data={"grant_type": "client_credentials"}, auth=("probe", "any")).json()
    said = claims(client, answer["access_token"])

    assert (said["sub"], said["client_id"], answer["token_type"]) == ("probe", "probe", "Bearer")


def test_an_opaque_token_is_told_to_the_client_that_may_ask(client: httpx.Client, example: ExampleIssuer) -> None:
    token = client.get(TOKEN, params={"subject": "bob", "opaque": ""}).text.strip()
    assert "." not in token

    assert client.post(INTROSPECT, data={"token": token}).status_code == 401
    answer = client.post(INTROSPECT, data={"token": token}, auth=(CLIENT, CLIENT_SECRET)).json()
    assert (answer["active"], answer["sub"]) == (True, "bob")
    example.withdraw(token)
    assert client.post(INTROSPECT, data={"token": token}, auth=(CLIENT, CLIENT_SECRET)).json() == {"active": False}


def test_forgeries_are_what_they_are_called(example: ExampleIssuer) -> None:
    none, confused = (example.token(algorithm=algorithm) for algorithm in ("none", "HS256"))

    assert none.endswith(".")
    assert jwt.get_unverified_header(none) == {"alg": "none", "typ": "at+jwt"}
    assert jwt.get_unverified_header(confused)["kid"] == example.key("RS256").kid
