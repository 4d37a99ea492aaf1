"""Calls about OpenID Connect issuers, and bindings of users to their identities (docs/reference/openid-connect.md)."""

import msgspec

from ams.client.wire.call import Call, json_body, nothing, reader, segment, users_path
from ams.wire.users import Binding, BindingBody, Bindings, Issuer, IssuerBody, Issuers

OF_SETTINGS = "settings"
"""Source of issuers that the settings of the service name; they cannot be changed over the API."""
KEPT = "***"
"""What is shown instead of a secret; sent back, it keeps the secret."""


def list_issuers() -> Call[Issuers]:
    """Ask for all issuers."""
    return Call("GET", _issuers_path(), reader(Issuers))


def get_issuer(name: str) -> Call[Issuer]:
    """Ask for one issuer."""
    return Call("GET", _issuers_path(name), reader(Issuer))


def create_issuer(issuer: Issuer) -> Call[Issuer]:
    """Believe the tokens of another issuer; `AlreadyExists` when its name or its URL is taken."""
    return Call("POST", _issuers_path(issuer.name), reader(Issuer), _body(issuer))


def update_issuer(issuer: Issuer) -> Call[Issuer]:
    """Replace all that is set of an issuer; `Conflict` for one of the settings."""
    return Call("PUT", _issuers_path(issuer.name), reader(Issuer), _body(issuer))


def delete_issuer(name: str) -> Call[None]:
    """Believe the tokens of an issuer no more; `Conflict` for one of the settings."""
    return Call("DELETE", _issuers_path(name), nothing)


def _body(issuer: Issuer) -> bytes:
    return json_body(msgspec.convert(issuer, IssuerBody, from_attributes=True))


def _issuers_path(name: str | None = None) -> str:
    return "/v1/issuers" if name is None else f"/v1/issuers/{segment('issuer', name)}"


def list_bindings(user: str) -> Call[Bindings]:
    """Ask for the bindings of a user."""
    return Call("GET", _bindings_path(user), reader(Bindings))


def create_binding(user: str, name: str, issuer: str, subject: str) -> Call[Binding]:
    """Let an identity log in as a user; `AlreadyExists` when the name is taken, or the identity is bound already."""
    return Call("POST", _bindings_path(user, name), reader(Binding), json_body(BindingBody(issuer, subject)))


def delete_binding(user: str, name: str) -> Call[None]:
    """Let an identity log in as this user no more."""
    return Call("DELETE", _bindings_path(user, name), nothing)


def _bindings_path(user: str, name: str | None = None) -> str:
    collection = f"{users_path(user)}/bindings"
    return collection if name is None else f"{collection}/{segment('binding', name)}"
