"""Users, members of projects, registrations (contract 5 to 7), and how users show who they are: tokens and bindings."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from ams.wire.base import ALWAYS, ListPage, Object, ObjectWithSecret, Request, Text

ENTITLEMENT_CLAIMS = ("entitlements", "eduperson_entitlement")  # where nothing else is said


class MembershipBody(Request, frozen=True):
    """An entry of `projects` in the body of a user or member; topics and subscriptions in it are ignored."""

    project: str | None = None
    roles: list[str] | None = None


class ApplicantBody(Request, frozen=True):
    """A person who applies to become a user; a name is required."""

    name: str | None = None
    email: str | None = None
    first_name: str | None = None
    last_name: str | None = None
    organization: str | None = None
    description: str | None = None


class UserBody(ApplicantBody, frozen=True):
    """What is said of a user (contract 5.3)."""

    # In an update, `name` is the new name.
    projects: list[MembershipBody] | None = None  # in an update, these and the service roles replace those before
    service_roles: list[str] | None = None


class MemberBody(Request, frozen=True):
    """A member; of `projects` only the entry of this project counts."""

    email: str | None = None
    projects: list[MembershipBody] | None = None


class MemberRoles(Request, frozen=True):
    """The roles of a new member."""

    roles: list[str] | None = None


class DeclineBody(Request, frozen=True):
    """Why a registration is refused; read as a map of texts (contract 1.2)."""

    comment: str | None = None


class Membership(Object, frozen=True):
    """A user's place in a project (contract 5.1)."""

    project: str
    roles: Sequence[str]
    topics: Sequence[str]  # those whose access list holds the user; so are the subscriptions
    subscriptions: Sequence[str]


class User(Object, frozen=True):
    """A user (contract 5.1)."""

    uuid: str
    name: str
    email: str
    service_roles: Sequence[str]
    created_on: str
    modified_on: str
    projects: list[Membership] = msgspec.field(default_factory=list)
    first_name: str = ""
    last_name: str = ""
    organization: str = ""
    description: str = ""
    token: str = ""  # there only for those who may see it
    created_by: str = ""


class Users(ListPage, frozen=True):
    """A page of users (contract 5.2 and 7.1)."""

    users: Sequence[User]


REGISTRATION_FILTERS = ("status", "activation_token", "name", "email", "organization")
"""Query parameters that say which registrations are wanted: what their columns have exactly."""


class Registration(Object, frozen=True):
    """A registration (contract 6)."""

    uuid: str
    name: str
    first_name: str
    last_name: str
    organization: str
    description: str
    email: str
    status: str  # pending, accepted or declined
    registered_at: str
    decline_comment: str = ""
    activation_token: str = ""
    modified_by: str = ""
    modified_at: str = ""


class Registrations(Object, frozen=True):
    """All registrations that were asked for, oldest first."""

    user_registrations: Sequence[Registration]


class Right(Object, frozen=True):
    """One thing a token is good for: an action, and the resource it is for."""

    action: str  # `KIND:VERB`, or `*`
    resource: str  # `projects/P`, something in it such as `projects/P/topics/T`, or `*`


class RightBody(Request, frozen=True):
    """One thing the token is good for; both are required."""

    action: str | None = None
    resource: str | None = None


class NewToken(Request, frozen=True):
    """The rights of a token, its lifetime and its public key; absent: all rights, no expiry, a text."""

    expires_on: str | None = None
    expires_in: int | None = None
    rights: list[RightBody] | None = None
    public_key: str | None = None


class Token(ObjectWithSecret, frozen=True):
    """A named token; `token` is its text, only in the answer that made it, and not of one with a key."""

    shown = ("name", "user")

    name: str
    user: str
    created_on: Text = ""
    created_by: str = ""
    expires_on: str = ""  # empty: never
    last_used: str = ""  # to about a minute; empty: never
    rights: Sequence[Right] | None = None  # what it is good for, of what its user may do; None: all of it
    key_id: str = ""  # of its public key; empty: it has none, but a text
    client_email: str = ""  # what a program with the key calls itself in what it signs
    token: str = ""


class NamedTokens(Object, frozen=True):
    """The named tokens of a user, oldest first."""

    tokens: Sequence[Token]


class BindingBody(Request, frozen=True):
    """By which identity the user logs in; both are required."""

    issuer: str | None = None
    subject: str | None = None


class Binding(Object, frozen=True):
    """A binding; `by_login` is only there when user and binding were made at the first login."""

    name: str
    user: str
    issuer: str  # the issuer's URL, as tokens say it in `iss`
    subject: str  # as tokens say it in `sub`
    created_on: Text = ""
    created_by: str = ""
    by_login: bool = False  # made with its user at the first login: entitlements decide the user's roles


class Bindings(Object, frozen=True):
    """All bindings of a user, oldest first."""

    bindings: Sequence[Binding]


class RoleRuleBody(Request, frozen=True):
    """Roles in a project for who has an entitlement."""

    entitlement: str | None = None
    project: str | None = None
    roles: list[str] | None = None


class IssuerBody(Request, frozen=True):
    """All that is set of an issuer: what is not said gets its default. Names are spelled exactly so."""

    url: str | None = None
    audiences: list[str] | None = None
    clients: list[str] | None = None
    jwks_url: str | None = None
    introspect: str | None = None
    introspection_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    create_users: bool | None = None
    entitlement_claims: list[str] | None = None
    roles: list[RoleRuleBody] | None = None


class RoleRule(Object, frozen=True):
    """Roles in a project for who has an entitlement."""

    entitlement: str
    project: str
    roles: Sequence[str]


class IssuerKeys(Object, frozen=True):
    """How it stands with an issuer's keys on the node that answers."""

    ids: Sequence[str]
    fetched_on: str = ""  # empty: not yet
    failure: str = ""  # why they could not be fetched the last time


class Issuer(ObjectWithSecret, frozen=True, kw_only=True, omit_defaults=False):
    """An issuer; its secret is shown as `***`."""

    shown = ("name", "url")

    name: str
    source: Text = ""  # `settings` or `registry`
    url: str  # exactly as tokens say it in `iss`
    audiences: Annotated[Sequence[str], ALWAYS] = ()
    clients: Annotated[Sequence[str], ALWAYS] = ()
    jwks_url: Text = ""
    introspect: Text = "never"  # `never`, `opaque` or `always`
    introspection_url: Text = ""
    client_id: Text = ""
    client_secret: Text = ""
    create_users: Annotated[bool, ALWAYS] = False
    entitlement_claims: Annotated[Sequence[str], ALWAYS] = ENTITLEMENT_CLAIMS
    roles: Annotated[Sequence[RoleRule], ALWAYS] = ()
    keys: Annotated[IssuerKeys, ALWAYS] = IssuerKeys([])


class Issuers(Object, frozen=True):
    """All issuers, those of the settings first."""

    issuers: Sequence[Issuer]
