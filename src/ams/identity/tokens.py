"""Tokens: verifies the signature, issuer, times and audience of a JWT, and returns its claims.

This module parses strictly, and PyJWT checks the signature with a key of the issuer for that algorithm (RFC 7515, 7519,
8725, 9068). The header names one of the issuer's keys; other sources of keys (`jku`, `jwk`, `x5u`, `x5c`) are ignored.
Every fault is `TokenRefused`, with a text for the client. The text never quotes the token, and at most
`MAX_QUOTED_CHARACTERS` characters of its claims, which are safe in a header (RFC 6750, 3).
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeGuard

import jwt

from ams.core.clock import Milliseconds
from ams.core.errors import TokenRefused
from ams.core.issuer import MAX_TEXT_LENGTH, MAX_URL_LENGTH, Issuer

MAX_TOKEN_CHARACTERS = 16 * 1024  # characters of a token
MAX_QUOTED_CHARACTERS = 100  # characters of a claim in an error
ALGORITHMS = frozenset(["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"])
"""Algorithms with a public key. With a shared key everybody who checks a token could make one (RFC 8725, 3.1)."""

_TYPES = frozenset({"jwt", "at+jwt"})  # media types of tokens for services; RFC 8725, 3.11 and RFC 9068, 2.1
_MAX_TIME_SECONDS = 253_402_300_799  # the end of the year 9999, in seconds
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")
_UNSAFE_CHARACTERS = re.compile(r'[^\x20-\x7e]|["\\]')


class TokenHeader(NamedTuple):
    """Algorithm (one of `ALGORITHMS`), key and issuer that a token names. Not verified yet."""

    algorithm: str
    kid: str | None
    issuer_url: str


def refuse_if(is_bad: object, text: str) -> None:
    """Raise `TokenRefused` with this text if `is_bad` is true."""
    if is_bad:
        raise TokenRefused(text)


def digest(token: str) -> bytes:
    """Return the cache key of a verified token."""
    # BLAKE2b: as strong as SHA-256, without a lookup in OpenSSL each time (hot path).
    return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=32).digest()


def require_length(token: str) -> None:
    """Raise `TokenRefused` for a token that is too long."""
    refuse_if(len(token) > MAX_TOKEN_CHARACTERS, f"The token is longer than {MAX_TOKEN_CHARACTERS} characters")


def header(token: str) -> TokenHeader:
    """Parse the header that selects a token's key. Raises `TokenRefused` for faults that no key could mend."""
    head, payload, _ = _parts(token)
    parameters, said = _parameters(head), _object(payload, "payload")
    issuer_url = said.get("iss")
    if not _is_plain(issuer_url, MAX_URL_LENGTH):
        raise TokenRefused("The token does not say who issued it")
    algorithm, kid = _algorithm(parameters), parameters.get("kid")
    refuse_if(kid is not None and not _is_plain(kid, MAX_TEXT_LENGTH), "The token's kid cannot be read")
    return TokenHeader(algorithm, kid, issuer_url)


def claims(token: str, issuer: Issuer, key: jwt.PyJWK, *, now: Milliseconds, leeway: float) -> Mapping[str, Any]:
    """Return the claims of a token signed with an issuer's key. `leeway` is in seconds. Raises `TokenRefused`."""
    head, payload, signature = _parts(token)
    algorithm = _algorithm(_parameters(head))
    refuse_if(key.algorithm_name != algorithm, f"The token's key is not one for {algorithm}")
    # Before the payload is parsed: forged tokens must be cheap.
    refuse_if(not _is_signed(f"{head}.{payload}", signature, key), "The token's signature is wrong")
    said = _object(payload, "payload")
    check(said, issuer, now=now, leeway=leeway)
    refuse_if("exp" not in said, "The token does not say when it expires")
    return said


def check(said: Mapping[str, Any], issuer: Issuer, *, now: Milliseconds, leeway: float) -> None:
    """Raise `TokenRefused` unless claims are of `issuer`, have a subject, are valid now, and are for us."""
    refuse_if(said.get("iss") != issuer.url, "The token is of another issuer")
    refuse_if(not _is_plain(said.get("sub"), MAX_TEXT_LENGTH), "The token does not say whose it is")
    expires_on, latest = expiry(said, leeway), now / 1000 + leeway
    refuse_if(expires_on is not None and now >= expires_on, "The token has expired")
    begins, issued = _time(said, "nbf") or 0, _time(said, "iat") or 0
    refuse_if(begins > latest, "The token is not good yet")
    is_of_future = issued > latest
    refuse_if(is_of_future, "The token was issued in the future: the issuer's clock and the service's differ")
    _check_audience(said, issuer)


def expiry(said: Mapping[str, Any], leeway: float) -> Milliseconds | None:
    """Return when checked claims expire, leeway included; None: never."""
    expires = _time(said, "exp")
    return None if expires is None else Milliseconds(int((expires + leeway) * 1000))


def quote_claim(text: str) -> str:
    """Return the start of a text, safe in an error and in a header (RFC 6750, 3)."""
    return _UNSAFE_CHARACTERS.sub("?", text[:MAX_QUOTED_CHARACTERS])


def _check_audience(said: Mapping[str, Any], issuer: Issuer) -> None:
    audience = said.get("aud", [])
    audiences = audience if isinstance(audience, list) else [audience]
    refuse_if(not all(isinstance(each, str) for each in audiences), "The token's aud cannot be read")
    if issuer.audiences and not set(issuer.audiences) & set(audiences):
        raise TokenRefused(f"The token is for another audience: {_list(audiences)}")
    clients = [client for client in (said.get("azp"), said.get("client_id")) if isinstance(client, str)]
    if issuer.clients and not set(issuer.clients) & set(clients):
        raise TokenRefused(f"The token was issued to another client: {_list(clients)}")


def _time(said: Mapping[str, Any], name: str) -> float | None:
    if name not in said:
        return None
    value = said[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_TIME_SECONDS:  # nor NaN
        raise TokenRefused(f"The token's {name} is no time")
    return value


def _list(texts: Iterable[str]) -> str:
    return quote_claim(", ".join(texts)) or "none"


def _is_plain(text: object, longest: int) -> TypeGuard[str]:
    return isinstance(text, str) and 0 < len(text) <= longest and text.isprintable()


def _algorithm(parameters: Mapping[str, Any]) -> str:
    algorithm = parameters.get("alg")
    if not isinstance(algorithm, str):
        raise TokenRefused("The token does not say how it is signed")
    refuse_if(algorithm.lower() == "none", "The token is not signed")
    shown = quote_claim(algorithm)
    refuse_if(algorithm not in ALGORITHMS, f"The token is signed in a way that is not accepted here: {shown}")
    return algorithm


def _is_signed(content: str, encoded_signature: str, key: jwt.PyJWK) -> bool:
    """Return whether a token is signed with a key, by the key's only algorithm.

    Bypasses PyJWT's own parser, which looks at each character: milliseconds for each token.
    """
    algorithm, signature = key.Algorithm, _bytes(encoded_signature, "signature")
    try:
        prepared = algorithm.prepare_key(key.key)
        if algorithm.check_key_length(prepared):
            raise jwt.InvalidKeyError
        return bool(algorithm.verify(content.encode(), prepared, signature))
    except jwt.InvalidKeyError:
        raise TokenRefused(f"The token's key is too short, or not one for {key.algorithm_name}") from None
    except (jwt.PyJWTError, ValueError, TypeError):
        return False


def _parts(token: str) -> tuple[str, str, str]:
    require_length(token)
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("The token is no JWT")
    return parts[0], parts[1], parts[2]


def _parameters(head: str) -> Mapping[str, Any]:
    """Return the header of a token. Refuses unknown types and extensions."""
    parameters = _object(head, "header")
    is_extended = "crit" in parameters or "b64" in parameters  # must be supported; RFC 7515, 4.1.11, RFC 7797
    refuse_if(is_extended, "The token has critical parameters that are not understood here")
    kind = parameters.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in _TYPES:
        raise TokenRefused("The token is of a type that is not for services")
    return parameters


def _object(part: str, name: str) -> Mapping[str, Any]:
    try:
        read = json.loads(_bytes(part, name).decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise TokenRefused(f"The token is no JWT: its {name} is no JSON object")
    return read


def _bytes(part: str, name: str) -> bytes:
    """Decode canonical base64url, without padding (RFC 7515, 2)."""
    if _BASE64URL.fullmatch(part) and len(part) % 4 != 1:
        decoded = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        if base64.urlsafe_b64encode(decoded).decode().rstrip("=") == part:
            return decoded
    raise TokenRefused(f"The token is no JWT: its {name} is not base64url")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate names: two programs might read two values (RFC 7519, 4)."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _no_constant(_name: str) -> NoReturn:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError
