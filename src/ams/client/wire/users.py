"""Calls about users, their named tokens (contract 5), registrations (6), and OpenID Connect: issuers and bindings."""

from collections.abc import Sequence
from types import NoneType

import msgspec

from ams.client.wire.call import Call, asks, call_of, given, nowhere, of_user, of_user_named, of_uuid, page
from ams.wire.users import (
    ApplicantBody,
    Binding,
    BindingBody,
    Bindings,
    DeclineBody,
    Issuer,
    IssuerBody,
    Issuers,
    NamedTokens,
    NewToken,
    Registration,
    Registrations,
    Right,
    RightBody,
    Token,
    User,
    UserBody,
    Users,
)

OF_SETTINGS = "settings"
"""Source of issuers that the settings of the service name; they cannot be changed over the API."""
KEPT = "***"
"""What is shown instead of a secret; sent back, it keeps the secret."""


# Calls that take nothing but the names in their path; the table of actions says what each is for.
get_user = asks(of_user, "users:show", User)
get_user_by_uuid = asks(of_uuid, "users:byUUID", User)
get_profile = asks(nowhere, "users:profile", User)
refresh_token = asks(of_user, "users:refreshToken", User)
delete_user = asks(of_user, "users:delete", NoneType)
list_tokens = asks(of_user, "tokens:list", NamedTokens)
get_token = asks(of_user_named, "tokens:show", Token)
revoke_token = asks(of_user_named, "tokens:revoke", NoneType)
get_registration = asks(of_uuid, "registrations:show", Registration)
accept_registration = asks(of_uuid, "registrations:acceptNewUser", User)
delete_registration = asks(of_uuid, "registrations:delete", NoneType)
list_issuers = asks(nowhere, "issuers:list", Issuers)
list_bindings = asks(of_user, "bindings:list", Bindings)
delete_binding = asks(of_user_named, "bindings:delete", NoneType)


def list_users(*, project: str = "", details: bool = False, page_size: int = 0, page_token: str = "") -> Call[Users]:
    """Ask for users, all or those of a project; `details` adds what they may do where."""
    query = page(page_size, page_token) | given(project=project, details="true" if details else "")
    return call_of("users:list", Users, query=query)


def get_user_by_token(token: str) -> Call[User]:
    """Ask whose token this is. The token travels in the address, which others may log: prefer `get_profile`."""
    return call_of("users:byToken", User, token)


def create_user(user: str, details: UserBody | None = None) -> Call[User]:
    """Make a user; the answer holds the token."""
    return call_of("users:create", User, user, body=details or UserBody())


def update_user(user: str, details: UserBody) -> Call[User]:
    """Change what is known of a user."""
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
    wanted = details or UserBody()
    body = ApplicantBody(
        name=user,
        email=wanted.email or None,
        first_name=wanted.first_name or None,
        last_name=wanted.last_name or None,
        organization=wanted.organization or None,
        description=wanted.description or None,
    )
    return call_of("registrations:newUser", Registration, body=body)


def list_registrations(
    *, status: str = "", name: str = "", email: str = "", organization: str = "", activation_token: str = ""
) -> Call[Registrations]:
    """Ask for registrations, oldest first: those that have all the values given."""
    query = given(status=status, name=name, email=email, organization=organization, activation_token=activation_token)
    return call_of("registrations:list", Registrations, query=query)


def decline_registration(uuid: str, comment: str = "") -> Call[None]:
    """Refuse a pending registration."""
    return call_of("registrations:declineNewUser", NoneType, uuid, body=DeclineBody(comment))


def get_issuer(name: str) -> Call[Issuer]:
    """Ask for one issuer."""
    return call_of("issuers:show", Issuer, name)


def create_issuer(issuer: Issuer) -> Call[Issuer]:
    """Believe the tokens of another issuer; `AlreadyExists` when its name or its URL is taken."""
    return call_of("issuers:create", Issuer, issuer.name, body=_body(issuer))


def update_issuer(issuer: Issuer) -> Call[Issuer]:
    """Replace all that is set of an issuer; `Conflict` for one of the settings."""
    return call_of("issuers:update", Issuer, issuer.name, body=_body(issuer))


def delete_issuer(name: str) -> Call[None]:
    """Believe the tokens of an issuer no more; `Conflict` for one of the settings."""
    return call_of("issuers:delete", NoneType, name)


def _body(issuer: Issuer) -> IssuerBody:
    return msgspec.convert(issuer, IssuerBody, from_attributes=True)


def create_binding(user: str, name: str, issuer: str, subject: str) -> Call[Binding]:
    """Let an identity log in as a user; `AlreadyExists` when the name is taken, or the identity is bound already."""
    return call_of("bindings:create", Binding, user, name, body=BindingBody(issuer, subject))
