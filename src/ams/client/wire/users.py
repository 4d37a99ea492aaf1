"""Calls about users, their named tokens (contract 5), registrations (6), and OpenID Connect: issuers and bindings."""

from collections.abc import Sequence

import msgspec

from ams.client.wire.call import Call, given, json_body, nothing, page, reader, registrations_path, segment, users_path
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


def list_users(*, project: str = "", details: bool = False, page_size: int = 0, page_token: str = "") -> Call[Users]:
    """Ask for users, all or those of a project; `details` adds what they may do where."""
    query = page(page_size, page_token) | given(project=project, details="true" if details else "")
    return Call("GET", users_path(), reader(Users), query=query)


def get_user(user: str) -> Call[User]:
    """Ask for a user by name."""
    return Call("GET", users_path(user), reader(User))


def get_user_by_uuid(uuid: str) -> Call[User]:
    """Ask for a user by uuid."""
    return Call("GET", f"/v1/users:byUUID/{segment('uuid', uuid)}", reader(User))


def get_user_by_token(token: str) -> Call[User]:
    """Ask whose token this is. The token travels in the address, which others may log: prefer `get_profile`."""
    return Call("GET", f"/v1/users:byToken/{segment('token', token)}", reader(User))


def get_profile() -> Call[User]:
    """Get the caller's own user."""
    return Call("GET", "/v1/users/profile", reader(User))


def create_user(user: str, details: UserBody | None = None) -> Call[User]:
    """Make a user; the answer holds the token."""
    return Call("POST", users_path(user), reader(User), json_body(details or UserBody()))


def update_user(user: str, details: UserBody) -> Call[User]:
    """Change what is known of a user."""
    return Call("PUT", users_path(user), reader(User), json_body(details))


def refresh_token(user: str) -> Call[User]:
    """Give a user a new token, shown in the answer; the old one is dead at once."""
    return Call("POST", users_path(user, "refreshToken"), reader(User))


def delete_user(user: str) -> Call[None]:
    """Remove a user from the service and from all access lists."""
    return Call("DELETE", users_path(user), nothing)


def list_tokens(user: str) -> Call[NamedTokens]:
    """Ask for the named tokens of a user."""
    return Call("GET", _tokens_path(user), reader(NamedTokens))


def get_token(user: str, name: str) -> Call[Token]:
    """Ask for one of them."""
    return Call("GET", _tokens_path(user, name), reader(Token))


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
    return Call("POST", _tokens_path(user, name), reader(Token), json_body(body))


def revoke_token(user: str, name: str) -> Call[None]:
    """Take a named token away: it opens nothing any more."""
    return Call("DELETE", _tokens_path(user, name), nothing)


def _tokens_path(user: str, name: str | None = None) -> str:
    collection = f"{users_path(user)}/tokens"
    return collection if name is None else f"{collection}/{segment('token', name)}"


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
    return Call("POST", registrations_path(), reader(Registration), json_body(body))


def list_registrations(
    *, status: str = "", name: str = "", email: str = "", organization: str = "", activation_token: str = ""
) -> Call[Registrations]:
    """Ask for registrations, oldest first: those that have all the values given."""
    query = given(status=status, name=name, email=email, organization=organization, activation_token=activation_token)
    return Call("GET", registrations_path(), reader(Registrations), query=query)


def get_registration(uuid: str) -> Call[Registration]:
    """Ask for one registration."""
    return Call("GET", registrations_path(uuid), reader(Registration))


def accept_registration(uuid: str) -> Call[User]:
    """Make the user a pending registration asks for; the answer holds the token."""
    return Call("POST", registrations_path(uuid, "accept"), reader(User))


def decline_registration(uuid: str, comment: str = "") -> Call[None]:
    """Refuse a pending registration."""
    return Call("POST", registrations_path(uuid, "decline"), nothing, json_body(DeclineBody(comment)))


def delete_registration(uuid: str) -> Call[None]:
    """Forget a registration, decided or not."""
    return Call("DELETE", registrations_path(uuid), nothing)


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
