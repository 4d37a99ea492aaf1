"""An issuer whose tokens are accepted, as a value."""

from dataclasses import dataclass, field
from typing import Literal

from ams.clock import Milliseconds
from ams.names import IssuerName

Introspect = Literal["never", "opaque", "always"]
"""Which tokens the issuer is asked about: none, those that are no JWT, or all."""

ENTITLEMENT_CLAIMS = ("entitlements", "eduperson_entitlement")
"""Claims that hold entitlements: that of RFC 9068 and AARC-G069, and the older one of eduPerson."""


@dataclass(frozen=True, slots=True)
class RoleRule:
    """Who has an entitlement has roles in a project."""

    entitlement: str
    """In the form of AARC-G069, `urn:NAMESPACE:group:GROUP[:role=ROLE][#AUTHORITY]`."""
    project: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer, and what of its tokens is asked for. Documented in docs/reference/openid-connect.md."""

    name: IssuerName
    url: str
    """Exactly as tokens say it in `iss`."""
    audiences: tuple[str, ...] = ()
    """One of them must be in `aud`."""
    clients: tuple[str, ...] = ()
    """One of them must be `azp` or `client_id`. Audiences, clients or both are given, and what is given must be met."""
    jwks_url: str = ""
    """Empty: as discovery says."""
    introspect: Introspect = "never"
    introspection_url: str = ""
    """Empty: as discovery says."""
    client_id: str = ""
    """Who asks about tokens."""
    client_secret: str = field(default="", repr=False)
    create_users: bool = False
    """Whether who is not bound to a user becomes one at the first login, if entitlements give a role."""
    entitlement_claims: tuple[str, ...] = ENTITLEMENT_CLAIMS
    roles: tuple[RoleRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Verified:
    """What a token that is to be believed says."""

    issuer: IssuerName
    url: str
    subject: str
    expires_on: Milliseconds
    """When the token expires, or is to be looked at again."""
    entitlements: tuple[str, ...] = ()
    email: str = ""
    first_name: str = ""
    last_name: str = ""
