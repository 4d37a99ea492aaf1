"""Calls about bindings of users to identities at OpenID Connect issuers (docs/reference/openid-connect.md)."""

from ams.client.wire.call import Call, json_body, nothing, reader, segment, users_path
from ams.client.wire.values import Object


class Binding(Object, frozen=True, kw_only=True, omit_defaults=True):
    """By which identity a user logs in."""

    name: str
    user: str
    issuer: str
    """The issuer's URL, as tokens say it in `iss`."""
    subject: str
    """As tokens say it in `sub`."""
    created_on: str = ""
    created_by: str = ""
    by_login: bool = False
    """Whether user and binding were made at the first login; then entitlements decide the user's roles."""


class Bindings(Object, frozen=True, kw_only=True, omit_defaults=True):
    """All bindings of a user, oldest first."""

    bindings: list[Binding]


_binding, _bindings = reader(Binding), reader(Bindings)


def list_bindings(user: str) -> Call[Bindings]:
    """Ask for the bindings of a user."""
    return Call("GET", _path(user), _bindings)


def create_binding(user: str, name: str, issuer: str, subject: str) -> Call[Binding]:
    """Let an identity log in as a user; `AlreadyExists` when the name is taken, or the identity bound to somebody."""
    return Call("POST", _path(user, name), _binding, json_body({"issuer": issuer, "subject": subject}))


def delete_binding(user: str, name: str) -> Call[None]:
    """Let an identity log in as this user no more."""
    return Call("DELETE", _path(user, name), nothing)


def _path(user: str, name: str | None = None) -> str:
    collection = f"{users_path(user)}/bindings"
    return collection if name is None else f"{collection}/{segment('binding', name)}"
