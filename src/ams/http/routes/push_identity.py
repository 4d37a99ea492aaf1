"""What receivers check the tokens of deliveries in Google's form with, where OpenID Connect Discovery looks for it."""

import msgspec

from ams.http.routes import answers
from ams.http.routing import Call, Row
from ams.service.push.identity import ALGORITHM, CONFIGURATION, KEYS, PushIdentity
from ams.wire.push import Jwk, Jwks, OpenIdConfiguration

_CLAIMS = ("aud", "azp", "email", "email_verified", "exp", "iat", "iss", "sub")


class PushIdentityRoutes:
    """The routes of a receiver that looks for keys; open to everybody."""

    def __init__(self, identity: PushIdentity) -> None:
        self._identity = identity

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [
            Row("GET", CONFIGURATION, None, self.configuration, answers=OpenIdConfiguration, at_root=True),
            Row("GET", KEYS, None, self.keys, answers=Jwks, at_root=True),
        ]

    async def configuration(self, _call: Call) -> bytes:
        """Who signs the tokens of deliveries in Google's form, and where the keys are."""
        issuer = self._identity.issuer
        return answers.encode(
            OpenIdConfiguration(issuer, issuer + KEYS, ("id_token",), ("public",), (ALGORITHM,), _CLAIMS)
        )

    async def keys(self, _call: Call) -> bytes:
        """The public keys that tokens of deliveries in Google's form are checked with."""
        return answers.encode(Jwks(msgspec.convert(await self._identity.keys(), list[Jwk])))
