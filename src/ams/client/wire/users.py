"""Calls about users, their named tokens (contract 5), registrations (6), and OpenID Connect: issuers and bindings."""

from collections.abc import Sequence
from functools import partial
from types import NoneType

import msgspec

from ams.client.wire.call import Call, call_of, non_empty, page
from ams.wire.users import *

OF_SETTINGS = "settings"  # source of issuers that the settings of the service name; they cannot be changed over the API
MASK = "***"  # shown instead of a secret; sent back, it keeps the secret
get_user = partial(call_of, "users:show", User)
get_user_by_uuid = partial(call_of, "users:byUUID", User)
get_profile = partial(call_of, "users:profile", User)
"""Get the caller's own user."""
refresh_token = partial(call_of, "users:refreshToken", User)
"""Replace a user's token; the answer has the new one. The old one is invalid at once."""
delete_user = partial(call_of, "users:delete", NoneType)
"""Remove a user from the service and from all access lists."""
list_tokens = partial(call_of, "tokens:list", NamedTokens)
"""Ask for the named tokens of a user, without their texts."""
get_token = partial(call_of, "tokens:show", Token)
"""Ask for one named token of a user; its text is not in the answer."""
revoke_token = partial(call_of, "tokens:revoke", NoneType)
get_registration = partial(call_of, "registrations:show", Registration)
accept_registration = partial(call_of, "registrations:acceptNewUser", User)
"""Accept a pending registration: makes the user; the answer holds the token."""
delete_registration = partial(call_of, "registrations:delete", NoneType)
"""Delete a registration in any state."""
list_issuers = partial(call_of, "issuers:list", Issuers)
list_bindings = partial(call_of, "bindings:list", Bindings)
delete_binding = partial(call_of, "bindings:delete", NoneType)
"""Remove a binding: the identity cannot log in as this user any more."""


def list_users(*, project: str = "", details: bool = False, page_size: int = 0, page_token: str = "") -> Call[Users]:
    """Ask for users, all or those of a project; `details` adds what they may do where."""
    query = page(page_size, page_token) | non_empty(project=project, details="true" if details else "")
    return call_of("users:list", Users, query=query)


get_user_by_token = partial(call_of, "users:byToken", User)
"""Get the owner of a token. The token is in the URL, which may be logged: prefer `get_profile`."""


def create_user(user: str, details: UserBody | None = None) -> Call[User]:
    """Make a user; the answer holds the token."""
    return call_of("users:create", User, user, body=details or UserBody())


def update_user(user: str, details: UserBody) -> Call[User]:
    """Change the fields of a user."""
    return call_of("users:update", User, user, body=details)


def create_token(
    user: str,
    name: str,
    *,
    expires_on: str = "",
    expires_in: int | None = None,
    rights: Sequence[Right] | None = None,
    public_key: str = "",
) -> Call[Token]:
    """Make a named token that is good until a time (RFC 3339), or for seconds; the answer holds it, this once.

    Without any of the two it never expires; without rights it is good for all that its user may do.
    With a public key (RSA, PEM) it has no text: programs show what they sign with the private half.
    """
    wanted = None if rights is None else [RightBody(each.action, each.resource) for each in rights]
    body = NewToken(expires_on or None, expires_in, wanted, public_key or None)
    return call_of("tokens:create", Token, user, name, body=body)


def register(user: str, details: UserBody | None = None) -> Call[Registration]:
    """Register for a user account of this name; projects and roles in `details` are ignored."""
    wanted, names = details or UserBody(), ApplicantBody.__struct_fields__
    said = {each: getattr(wanted, each) or None for each in names if each != "name"}
    return call_of("registrations:newUser", Registration, body=ApplicantBody(name=user, **said))


def list_registrations(
    *, status: str = "", name: str = "", email: str = "", organization: str = "", activation_token: str = ""
) -> Call[Registrations]:
    """Ask for registrations, oldest first: those that have all the values given."""
    query = non_empty(
        status=status, name=name, email=email, organization=organization, activation_token=activation_token
    )
    return call_of("registrations:list", Registrations, query=query)


def decline_registration(uuid: str, comment: str = "") -> Call[None]:
    """Refuse a pending registration."""
    return call_of("registrations:declineNewUser", NoneType, uuid, body=DeclineBody(comment))


get_issuer = partial(call_of, "issuers:show", Issuer)


def create_issuer(issuer: Issuer) -> Call[Issuer]:
    """Add an issuer whose tokens are accepted; `AlreadyExists` if its name or URL is taken."""
    return call_of("issuers:create", Issuer, issuer.name, body=_body(issuer))


def update_issuer(issuer: Issuer) -> Call[Issuer]:
    """Replace an issuer; `Conflict` for one from the settings."""
    return call_of("issuers:update", Issuer, issuer.name, body=_body(issuer))


delete_issuer = partial(call_of, "issuers:delete", NoneType)
"""Remove an issuer; `Conflict` for one from the settings."""


def _body(issuer: Issuer) -> IssuerBody:
    return msgspec.convert(issuer, IssuerBody, from_attributes=True)


def create_binding(user: str, name: str, issuer: str, subject: str) -> Call[Binding]:
    """Bind an identity to a user; `AlreadyExists` if the name or the identity is taken."""
    return call_of("bindings:create", Binding, user, name, body=BindingBody(issuer, subject))
