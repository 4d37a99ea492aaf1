"""An OpenID Connect issuer as small as one can be: it issues any token to any client, to try AMS with. Never for real
users.

It has what AMS needs of an issuer: its description, the keys its tokens are signed with, and an answer about tokens. In
tests it also misbehaves on demand. To try it by hand:

    python -m demo.issuer --port 9400
    curl 'http://127.0.0.1:9400/token?subject=alice'
"""

import argparse
import base64
import hashlib
import hmac
import json
import secrets
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, unquote_plus, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
Claims = dict[str, Any]

DISCOVERY, JWKS, INTROSPECT, TOKEN = "/.well-known/openid-configuration", "/jwks", "/introspect", "/token"
ALGORITHMS = ("RS256", "ES256")
CLIENT, CLIENT_SECRET = "ams", "a secret of the example"
LONGEST_HANG = 30.0  # seconds after which an answer that hangs comes all the same


class Key(NamedTuple):
    algorithm: str
    private: PrivateKey
    kid: str

    def public(self) -> dict[str, Any]:
        return {**_jwk(self.private), "kid": self.kid, "alg": self.algorithm, "use": "sig"}


_spare: dict[str, list[Key]] = {algorithm: [] for algorithm in ALGORITHMS}
"""Keys of stopped issuers, for reuse: making one takes a while. No two running issuers share one."""


def _taken(algorithm: str) -> Key:
    if _spare[algorithm]:
        return _spare[algorithm].pop()
    private = rsa.generate_private_key(65537, 2048) if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())
    kid = hashlib.sha256(json.dumps(_jwk(private), sort_keys=True).encode()).hexdigest()[:16]
    return Key(algorithm, private, kid)


def _jwk(private: PrivateKey) -> dict[str, Any]:
    numbers = private.public_key().public_numbers()
    if isinstance(numbers, rsa.RSAPublicNumbers):
        return {"kty": "RSA", "n": _number(numbers.n, 256), "e": _number(numbers.e, 3)}
    return {"kty": "EC", "crv": "P-256", "x": _number(numbers.x, 32), "y": _number(numbers.y, 32)}


class IssuerResponse(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class ExampleIssuer:
    """An issuer on the loopback during `with`. Without a port a free one is taken, with `tls` it is https."""

    def __init__(self, port: int = 0, now: Callable[[], float] = time.time, tls: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._now = now
        self._tls = tls
        self._server: _Server | None = None
        self._keys: list[Key] = []
        self._used: list[Key] = []
        self._known: dict[str, Claims] = {}
        self._released = threading.Event()
        self._released.set()
        self.client_id, self.client_secret = CLIENT, CLIENT_SECRET
        self.requests: Counter[str] = Counter()
        self.instead: dict[str, IssuerResponse] = {}  # answers at paths instead of the real ones

    def __enter__(self) -> Self:
        self.rotate()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        for key in self._used:
            _spare[key.algorithm].append(key)

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self._port), self)
        self._port = self._server.server_address[1]
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self._released.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    @property
    def url(self) -> str:
        """Return the URL of the issuer, which is `iss` in its tokens."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def hang(self) -> bool:
        return not self._released.is_set()

    @hang.setter
    def hang(self, on: bool) -> None:
        (self._released.clear if on else self._released.set)()

    @property
    def lie(self) -> bytes | None:
        return self.instead[JWKS].body if JWKS in self.instead else None

    @lie.setter
    def lie(self, body: bytes | None) -> None:
        if body is None:
            self.instead.pop(JWKS, None)
        else:
            self.instead[JWKS] = IssuerResponse(200, body)

    def public_keys(self) -> list[dict[str, Any]]:
        return [key.public() for key in self._keys]

    def key(self, algorithm: str = "RS256") -> Key:
        return next(key for key in self._keys if key.algorithm == algorithm)

    def rotate(self, keep_old: bool = False) -> None:
        fresh = [_taken(algorithm) for algorithm in ALGORITHMS]
        self._used += fresh
        self._keys = [*fresh, *self._keys] if keep_old else fresh

    def token(
        self,
        subject: str = "alice",
        *,
        audience: str | Sequence[str] = "ams",
        client: str = "app",
        lifetime: float = 3600,
        claims: Mapping[str, Any] = {},
        algorithm: str = "RS256",
        key: PrivateKey | None = None,
        headers: Mapping[str, Any] = {},
    ) -> str:
        """Issue a JWT; claims and headers go over its own, those that are None leave theirs out.

        `key` is another key to sign with. Two algorithms are forgeries: `none` has no signature, and HS256 one that is
        made with the public key as if it were a secret.
        """
        said = self._claims(subject, audience, client, lifetime, claims)
        own = self.key("RS256" if algorithm == "HS256" else algorithm) if algorithm != "none" else None
        header = _without_none({"alg": algorithm, "typ": "at+jwt", "kid": own.kid if own else None, **headers})
        start = f"{_part(header)}.{_part(said)}"
        token = f"{start}.{_base64(_signature(start.encode(), algorithm, key or (own.private if own else None)))}"
        self._known[token] = said
        return token

    def opaque(self, subject: str = "alice", *, lifetime: float = 3600, **claims: Any) -> str:
        token = secrets.token_urlsafe(32)
        self._known[token] = self._claims(subject, "ams", "app", lifetime, claims)
        return token

    def withdraw(self, token: str) -> None:
        """Revoke a token; introspection reports it, a JWT itself does not show it."""
        self._known.pop(token, None)

    def _claims(
        self, subject: str, audience: str | Sequence[str], client: str, lifetime: float, claims: Mapping[str, Any]
    ) -> Claims:
        now = int(self._now())
        usual = {
            "iss": self.url,
            "sub": subject,
            "aud": audience if isinstance(audience, str) else list(audience),
            "azp": client,
            "client_id": client,
            "iat": now,
            "exp": int(now + lifetime),
            "jti": secrets.token_hex(8),
        }
        return _without_none({**usual, **claims})

    def answer(self, path: str, query: str, form: str, authorization: str) -> IssuerResponse:
        self.requests[path] += 1
        if path == JWKS:
            self._released.wait(LONGEST_HANG)
        if path in self.instead:
            return self.instead[path]
        if path == DISCOVERY:
            return _json(self._description())
        if path == JWKS:
            return _json({"keys": self.public_keys()})
        if path == INTROSPECT:
            return self._about(form, authorization)
        if path == TOKEN:
            return self._given(query, form, authorization)
        return _json({"error": "not_found"}, 404)

    def _description(self) -> Claims:
        return {
            "issuer": self.url,
            "jwks_uri": self.url + JWKS,
            "token_endpoint": self.url + TOKEN,
            "introspection_endpoint": self.url + INTROSPECT,
            "introspection_endpoint_auth_methods_supported": ["client_secret_basic"],
            "grant_types_supported": ["client_credentials"],
            "id_token_signing_alg_values_supported": list(ALGORITHMS),
        }

    def _about(self, form: str, authorization: str) -> IssuerResponse:
        """Return whether a token is valid, and for whom (RFC 7662, 2.2)."""
        if _client(authorization) != (self.client_id, self.client_secret):
            return _json({"error": "invalid_client"}, 401)
        said = self._known.get(_values(form).get("token", ""))
        if said is None or said.get("exp", 0) <= self._now():
            return _json({"active": False})
        return _json({"active": True, **said})

    def _given(self, query: str, form: str, authorization: str) -> IssuerResponse:
        """Issue a token: to a client with its credentials, or to any client for the subject in the request."""
        asked = _values(form or query)
        client = _client(authorization)[0] or asked.get("client", "app")
        said = {"entitlements": parse_qs(form or query).get("entitlement"), "email": asked.get("email")}
        subject, lifetime = asked.get("subject", client), asked.get("lifetime", "3600")
        if not lifetime.removeprefix("-").isdecimal():
            return _json({"error": "invalid_request", "error_description": "lifetime is in whole seconds"}, 400)
        if "opaque" in asked:
            token = self.opaque(subject, lifetime=int(lifetime), client_id=client, **said)
        else:
            audience = asked.get("audience", "ams")
            token = self.token(subject, audience=audience, client=client, lifetime=int(lifetime), claims=said)
        if not form:
            return IssuerResponse(200, token.encode() + b"\n", {"Content-Type": "text/plain"})
        return _json({"access_token": token, "token_type": "Bearer", "expires_in": int(lifetime)})


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], issuer: ExampleIssuer) -> None:
        super().__init__(address, _Handler)
        self.issuer = issuer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer("")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode("latin-1"))

    def _answer(self, form: str) -> None:
        where = urlsplit(self.path)
        answer = self.server.issuer.answer(where.path, where.query, form, self.headers.get("Authorization", ""))
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - named by the library
        """Print nothing."""


def _client(authorization: str) -> tuple[str, str]:
    """Return the client's credentials: form-encoded, then in base64 (RFC 6749, 2.3.1); empty for anything else."""
    kind, _, text = authorization.partition(" ")
    if kind.lower() != "basic":
        return "", ""
    name, _, secret = base64.b64decode(text).decode().partition(":")
    return unquote_plus(name), unquote_plus(secret)


def _signature(text: bytes, algorithm: str, key: PrivateKey | None) -> bytes:
    if key is None:
        return b""
    if algorithm == "HS256":
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return hmac.digest(public, text, "sha256")
    return jwt.get_algorithm_by_name(algorithm).sign(text, key)


def _values(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}


def _without_none(values: Claims) -> Claims:
    return {name: value for name, value in values.items() if value is not None}


def _json(value: Claims, status: int = 200) -> IssuerResponse:
    return IssuerResponse(status, json.dumps(value).encode())


def _part(value: Claims) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(number: int, size: int) -> str:
    return _base64(number.to_bytes(size, "big"))


def main() -> None:
    words = "An example issuer; it issues any token to any client."
    parser = argparse.ArgumentParser(prog="demo.issuer", description=words)
    parser.add_argument("--port", type=int, default=9400)
    with ExampleIssuer(parser.parse_args().port) as issuer:
        print(f"The issuer is {issuer.url}; it issues any token to any client, so trust it on this machine only.")
        print(f"A token: curl '{issuer.url}{TOKEN}?subject=alice'", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
