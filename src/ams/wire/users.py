"""Users, members of projects, and registrations (contract 5 to 7)."""

from collections.abc import Sequence

import msgspec

from ams.wire.base import ListPage, Object, Request


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
    projects: list[MembershipBody] | None = None
    """In an update, these replace what there was, also with nothing; so do the service roles."""
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
    topics: Sequence[str]
    """Those whose access list holds the user; so are the subscriptions."""
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
    token: str = ""
    """There only for those who may see it."""
    created_by: str = ""


class Users(ListPage, frozen=True):
    """A page of users (contract 5.2 and 7.1)."""

    users: Sequence[User]


class Registration(Object, frozen=True):
    """A registration (contract 6)."""

    uuid: str
    name: str
    first_name: str
    last_name: str
    organization: str
    description: str
    email: str
    status: str
    """pending, accepted or declined."""
    registered_at: str
    decline_comment: str = ""
    activation_token: str = ""
    modified_by: str = ""
    modified_at: str = ""


class Registrations(Object, frozen=True):
    """All registrations that were asked for, oldest first."""

    user_registrations: Sequence[Registration]
