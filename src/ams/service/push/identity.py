"""Identity of deliveries in Google's form: OpenID Connect tokens, and the public keys to verify them.

A token is a JWT (RS256) with the service account that delivers, and the audience. All nodes sign with one key of the
installation, made at its first use and stored in the registry. OpenID Connect Discovery publishes the public key at the
issuer's URL.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jwt
import structlog
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ams.core.clock import Clock
from ams.core.errors import Damaged
from ams.core.push_config import PushConfig
from ams.storage.registry.signing_keys import PUSH, SigningKey, SigningKeyRecords

ALGORITHM = "RS256"
LIVES_SECONDS, RENEWED_SECONDS = 3600, 1800  # how long a token is good, and when it is replaced
_BITS, _EXPONENT, _ID_LENGTH = 2048, 65537, 40
logger = structlog.get_logger("ams.push")


class Claim(NamedTuple):
    """The service account that delivers, and the audience of its token."""

    service_account: str
    audience: str


def claim_of(config: PushConfig) -> Claim | None:
    """Return the claim of a configuration's deliveries; None: they have no token."""
    if config.google is None or not config.google.service_account:
        return None
    return Claim(config.google.service_account, config.google.audience or config.endpoint)


_Key = tuple[str, rsa.RSAPrivateKey]  # its id, and the key


class PushIdentity:
    """Signs tokens, and returns the public keys. All calls raise `RegistryUnavailable`."""

    def __init__(self, records: SigningKeyRecords, issuer: str, clock: Clock) -> None:
        """`issuer` is the URL that receivers know the installation by, without a slash at its end."""
        self.issuer, self._records, self._clock = issuer, records, clock
        self._key: _Key | None = None
        self._making = asyncio.Lock()
        self._tokens: dict[Claim, tuple[str, int]] = {}  # with the second in which each was made

    async def keys(self) -> Sequence[Mapping[str, Any]]:
        """Return the public keys, as JWKs. Raises `Damaged`."""
        name, private = await self._own_key()
        found = jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
        return [{"kty": found["kty"], "use": "sig", "alg": ALGORITHM, "kid": name, "n": found["n"], "e": found["e"]}]

    async def tokens(self, configs: Iterable[PushConfig]) -> Mapping[Claim, str]:
        """Return a token per claim of `configs`; empty, and logged, while the key is unreadable."""
        wanted = {claim for each in configs if (claim := claim_of(each)) is not None}
        if not wanted:
            self._tokens = {}
            return {}
        try:
            key = await self._own_key()
        except Damaged as error:
            logger.error("push_key.damaged", reason=str(error))
            return {}
        now = self._clock.wall() // 1000
        known = {each: token for each, token in self._tokens.items() if each in wanted}
        fresh = {each: (text, made) for each, (text, made) in known.items() if 0 <= now - made < RENEWED_SECONDS}
        missing = wanted - fresh.keys()
        if missing:  # a signature takes about a millisecond, and there may be thousands
            fresh |= await asyncio.to_thread(lambda: {each: self._sign(key, each, now) for each in missing})
        self._tokens = fresh
        return {each: text for each, (text, _) in fresh.items()}

    def _sign(self, key: _Key, claim: Claim, now: int) -> tuple[str, int]:
        account, until = claim.service_account, now + LIVES_SECONDS
        said: dict[str, Any] = {"iss": self.issuer, "aud": claim.audience, "azp": account, "sub": account}
        said |= {"email": account, "email_verified": True, "iat": now, "exp": until}
        name, private = key
        return jwt.encode(said, private, ALGORITHM, headers={"kid": name}), now

    async def _own_key(self) -> _Key:
        async with self._making:
            if self._key is None:
                found = await self._records.find(PUSH)
                found = found or await self._records.add(PUSH, await asyncio.to_thread(_make_key))
                private = serialization.load_pem_private_key(found.pem.encode(), None)
                assert isinstance(private, rsa.RSAPrivateKey)
                self._key = found.id, private
            return self._key


def _make_key() -> SigningKey:
    key = rsa.generate_private_key(_EXPONENT, _BITS)  # takes a good part of a second
    encoding, secret = serialization.Encoding, serialization.NoEncryption()
    public = key.public_key().public_bytes(encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    pem = key.private_bytes(encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    return SigningKey(hashlib.sha256(public).hexdigest()[:_ID_LENGTH], pem.decode())
