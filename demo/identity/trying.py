"""Who is to be refused, with which token, and in which words."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from demo.federation import TOPIC
from demo.identity.tenancy import AUDIENCE, OTHER_TOPIC, Tokens
from demo.identity.working import Refusal, api_key, bearer, refusal
from demo.issuer import ExampleIssuer
from demo.service import Service

Headers = Callable[[ExampleIssuer, Tokens], Mapping[str, str]]
CHALLENGE = 'Bearer realm="ams"'
"""The challenge of every 401 (RFC 6750, 3)."""
UNKNOWN = "Unauthorized"
"""What is said of a token of no user."""


class Try(NamedTuple):
    """A publish that is to be refused."""

    name: str
    code: int
    text: str
    headers: Headers
    topic: str = TOPIC


def _issued(**asked: object) -> Headers:
    """Return the headers of a token of the issuer."""
    return lambda issuer, _: bearer(issuer.token(**{"audience": AUDIENCE, **asked}))  # type: ignore[arg-type]


def _named(which: str) -> Headers:
    return lambda _, tokens: api_key(getattr(tokens, which))


TRIES = (
    Try("unsigned", 401, "The token is not signed", _issued(algorithm="none")),
    Try(
        "signed with what is public",
        401,
        "The token is signed in a way that is not accepted here: HS256",
        _issued(algorithm="HS256"),
    ),
    Try("expired", 401, "The token has expired", _issued(lifetime=-3600)),
    Try("for another service", 401, "The token is for another audience: others", _issued(audience="others")),
    Try(
        "of no user",
        401,
        "No entitlement of the identity gives it a role here (issuer example)",
        _issued(subject="mallory"),
    ),
    Try("named, expired", 401, "The token has expired", _named("expiring")),
    Try("named, revoked", 401, UNKNOWN, _named("revoked")),
    Try("named, for another topic", 403, "The token is not good for this", _named("sensor"), OTHER_TOPIC),
)


def is_refused(ams: Service, issuer: ExampleIssuer, tokens: Tokens, tried: Try) -> bool:
    """Show how a try ends; return whether it was refused as it should be."""
    headers = tried.headers(issuer, tokens)
    found = refusal(ams, headers, tried.topic)
    if found is None:
        print(f"  {tried.name}: accepted")
        return False
    print(f"  {tried.name}: {found.code} {found.text}")
    return found.code == tried.code and found.text == tried.text and _is_challenged(found)


def _is_challenged(found: Refusal) -> bool:
    """Whether the header is complete: the scheme that a 401 requires, and what is wrong with a token."""
    if found.code != 401:
        return not found.challenge
    told = f', error="invalid_token", error_description="{found.text}"' if found.text != UNKNOWN else ""
    return found.challenge == CHALLENGE + told
