"""The certificate service: service types, auth methods, bindings, keys, and logins (authn contract 5 to 8).

Of a request, None says nothing. Of an answer, what has a default is left out where there is none.
"""

from collections.abc import Mapping, Sequence

import msgspec

from ams.wire.base import Object, ObjectWithSecret, Request


class ServiceTypeFields(Request, frozen=True, kw_only=True):
    """What a request says of a service type."""

    name: str | None = None
    hosts: tuple[str, ...] | None = None
    auth_types: tuple[str, ...] | None = None
    auth_method: str | None = None
    type: str | None = None
    verify_client_host: bool | None = None


class AuthMethodFields(Request, frozen=True, kw_only=True):
    """What a request says of an auth method. What the kind does not have is passed over."""

    host: str | None = None
    port: int | None = None
    access_key: str | None = None
    headers: Mapping[str, str] | None = None
    service_uuid: str | None = None  # only heard in an update


class BindingFields(Request, frozen=True, kw_only=True):
    """What a request says of a binding."""

    name: str | None = None  # only heard in an update: a new binding has the name of its path
    service_uuid: str | None = None
    host: str | None = None
    auth_identifier: str | None = None
    unique_key: str | None = None
    auth_type: str | None = None
    issuer: str | None = None
    subject_sha256: str | None = None


class KeyFields(Request, frozen=True):
    """What a request says of a new key."""

    scope: str | None = None


class ServiceType(Object, frozen=True, kw_only=True):
    """A kind of service and the hosts it runs on (authn contract 5); `verify_client_host` is ours."""

    name: str
    hosts: Sequence[str]
    auth_types: Sequence[str]
    auth_method: str  # `api-key` or `headers`
    uuid: str
    created_on: str = ""
    updated_on: str = ""
    type: str
    verify_client_host: bool = False  # whether a client's address must be one of its certificate's names


class ServiceTypes(Object, frozen=True):
    """Service types, oldest first."""

    service_types: Sequence[ServiceType]
    next_page_token: str = msgspec.field(name="nextPageToken", default="")


class AuthMethod(ObjectWithSecret, frozen=True, kw_only=True):
    """How one host is asked for its users (authn contract 6), its secrets masked (15, A16)."""

    shown = ("host", "port", "service_uuid")

    service_uuid: str
    port: int
    host: str
    type: str
    uuid: str
    created_on: str = ""
    updated_on: str = ""
    access_key: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class AuthMethods(Object, frozen=True):
    """Auth methods, oldest first."""

    auth_methods: Sequence[AuthMethod]
    next_page_token: str = msgspec.field(name="nextPageToken", default="")


class Binding(Object, frozen=True, kw_only=True):
    """A certificate's subject on one host of a service type, and the user it stands for (authn contract 7).

    `issuer` and `subject_sha256` are ours.
    """

    name: str
    service_uuid: str
    host: str
    auth_identifier: str  # the subject in normal form
    uuid: str
    auth_type: str
    unique_key: str  # the user's id at the service, such as the uuid of an AMS user
    created_on: str = ""
    updated_on: str = ""
    last_auth: str = ""
    issuer: str = ""  # the only issuer that is accepted, in normal form; empty: any trusted CA
    subject_sha256: str = ""  # of the whole subject as it was at the first login; empty: no login yet (15, A8)


class Bindings(Object, frozen=True):
    """Bindings, oldest first: all, those of a host, or the one that was searched for."""

    bindings: Sequence[Binding]
    next_page_token: str = msgspec.field(name="nextPageToken", default="")


class Key(ObjectWithSecret, frozen=True):
    """A named management key; the key itself only in the answer that made it (15, A15)."""

    shown = ("name", "scope")

    name: str
    scope: str  # `read` or `write`
    created_on: str = ""
    key: str = ""


class Keys(Object, frozen=True):
    """All management keys."""

    keys: Sequence[Key]


class Token(ObjectWithSecret, frozen=True):
    """What a login brings."""

    token: str
