"""Calls about OpenID Connect issuers whose tokens are accepted (docs/reference/openid-connect.md)."""

import msgspec

from ams.client.wire.call import Call, json_body, nothing, reader, segment
from ams.client.wire.values import Object

OF_SETTINGS = "settings"
"""Source of issuers that the settings of the service name; they cannot be changed over the API."""
KEPT = "***"
"""What is shown instead of a secret; sent back, it keeps the secret."""
ENTITLEMENT_CLAIMS = ("entitlements", "eduperson_entitlement")
"""Claims with entitlements, unless something else is said."""

_SHOWN_ONLY = ("name", "source", "keys")


class RoleRule(Object, frozen=True, kw_only=True, omit_defaults=False):
    """Who has an entitlement has roles in a project."""

    entitlement: str
    project: str
    roles: list[str]


class IssuerKeys(Object, frozen=True, kw_only=True, omit_defaults=True):
    """How it stands with the keys of an issuer, on the node that answered."""

    fetched_on: str = ""
    """Empty: not yet."""
    ids: list[str]
    failure: str = ""
    """Why they could not be fetched the last time."""


class Issuer(Object, frozen=True, kw_only=True, omit_defaults=False):
    """An issuer, and what of its tokens is asked for; all but the name may be left out where that makes sense."""

    name: str
    url: str
    """Exactly as tokens say it in `iss`."""
    audiences: list[str] = msgspec.field(default_factory=list)
    clients: list[str] = msgspec.field(default_factory=list)
    jwks_url: str = ""
    introspect: str = "never"
    """`never`, `opaque` or `always`."""
    introspection_url: str = ""
    client_id: str = ""
    client_secret: str = ""
    """Shown as `***` where there is one."""
    create_users: bool = False
    entitlement_claims: list[str] = msgspec.field(default_factory=lambda: list(ENTITLEMENT_CLAIMS))
    roles: list[RoleRule] = msgspec.field(default_factory=list)
    source: str = ""
    """`settings` or `registry`."""
    keys: IssuerKeys = IssuerKeys(ids=[])

    def __repr__(self) -> str:
        """Show no secret."""
        return f"Issuer(name={self.name!r}, url={self.url!r})"


class Issuers(Object, frozen=True, kw_only=True, omit_defaults=False):
    """All issuers, those of the settings first."""

    issuers: list[Issuer]


_issuer, _issuers = reader(Issuer), reader(Issuers)


def list_issuers() -> Call[Issuers]:
    """Ask for all issuers."""
    return Call("GET", _path(), _issuers)


def get_issuer(name: str) -> Call[Issuer]:
    """Ask for one issuer."""
    return Call("GET", _path(name), _issuer)


def create_issuer(issuer: Issuer) -> Call[Issuer]:
    """Believe the tokens of another issuer; `AlreadyExists` when its name or its URL is taken."""
    return Call("POST", _path(issuer.name), _issuer, _body(issuer))


def update_issuer(issuer: Issuer) -> Call[Issuer]:
    """Replace all that is set of an issuer; `Conflict` for one of the settings."""
    return Call("PUT", _path(issuer.name), _issuer, _body(issuer))


def delete_issuer(name: str) -> Call[None]:
    """Believe the tokens of an issuer no more; `Conflict` for one of the settings."""
    return Call("DELETE", _path(name), nothing)


def _body(issuer: Issuer) -> bytes:
    said = msgspec.to_builtins(issuer)
    return json_body({name: value for name, value in said.items() if name not in _SHOWN_ONLY})


def _path(name: str | None = None) -> str:
    return "/v1/issuers" if name is None else f"/v1/issuers/{segment('issuer', name)}"
