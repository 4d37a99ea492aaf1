"""What the certificate service knows: service types, auth methods, bindings, keys and clients; and the rules for them.

The texts of errors are those of contract 4. Times are milliseconds since the epoch; `None` where the contract leaves a
time out.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NewType

from cryptography import x509

from ams.core.clock import Milliseconds
from ams.core.errors import NotFound, Unprocessable

ServiceTypeId = NewType("ServiceTypeId", str)
BindingId = NewType("BindingId", str)

X509 = "x509"
"""The auth type of logins by certificate."""
API_KEY, HEADERS = "api-key", "headers"
"""How a service is asked for a user's token (contract 6)."""
PEER = "authn.peer"
"""Key of the ASGI scope where a request's `Peer` is: set by the connection, changed by proxies that are believed."""
UNREADABLE = "Your certificate cannot be read"
"""What is said of one; what a parser says of it is for a log."""

SERVICE_TYPE_GONE = "Service-type was not found"
HOST_GONE = "Host was not found"
AUTH_METHOD_GONE = "Auth method was not found"
BINDING_GONE = "Binding was not found"

LONGEST_NAME = 512
"""Characters; the names provisioning makes of three others stay far below."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?")
_SECRET = re.compile(r"[0-9a-f]{40,}", re.IGNORECASE)
"""What may be a key or a token, in a text where none belongs."""
_LONGEST_LOGGED = 1_000
"""Characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceType:
    """A kind of service and the hosts it runs on (contract 5)."""

    uuid: ServiceTypeId
    name: str
    hosts: tuple[str, ...]
    auth_types: tuple[str, ...]
    auth_method: str
    """`api-key` or `headers`."""
    type: str
    """`ams`, `web-api` or `custom`: picks path and field of the settings."""
    verify_client_host: bool = False
    """Ours: whether a client's address must be one of its certificate's names (A12)."""
    created_on: Milliseconds
    updated_on: Milliseconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthMethod:
    """How one host of a service type is asked for a user (contract 6). Its secrets are never shown in `repr`."""

    uuid: str
    service_uuid: ServiceTypeId
    host: str
    port: int
    type: str
    """`api-key` or `headers`, as the service type's `auth_method`."""
    access_key: str = field(default="", repr=False)
    """Of `api-key`."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of `headers`; sent with each request to the service."""
    created_on: Milliseconds
    updated_on: Milliseconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A certificate's subject on one host of a service type, and the user it stands for there (contract 7)."""

    uuid: BindingId
    name: str
    service_uuid: ServiceTypeId
    host: str
    auth_identifier: str
    """The subject in normal form (`ams.core.distinguished_names`); any text is taken."""
    unique_key: str
    """The user's id at the service, such as the UUID of an AMS user."""
    auth_type: str
    issuer: str = ""
    """Ours: the normal form of the only issuer that is believed; empty = any trusted CA (A8)."""
    subject_sha256: str = ""
    """Ours: hex SHA-256 of the whole subject (DER), kept at the first login; empty = none yet (A8)."""
    created_on: Milliseconds
    updated_on: Milliseconds | None = None
    last_auth: Milliseconds | None = None
    """The last login, to the minute (A5)."""


READ, WRITE = "read", "write"
"""What a key opens: looking, or changing too (15, A15)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A named key of the management interface; the secret itself is shown once and kept nowhere."""

    name: str
    scope: str
    """`read` or `write`."""
    created_on: Milliseconds


@dataclass(frozen=True, slots=True)
class Presented:
    """What a client showed, or a trusted proxy says it showed; the client has proved to hold the leaf's key."""

    leaf: x509.Certificate
    chain: tuple[x509.Certificate, ...] = ()
    """What came with it, in whatever order, and is not to be believed for that."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who asks."""

    address: str
    """IP address of the client, in its usual form; that which a trusted proxy tells."""
    presented: Presented | None = None
    """None without a certificate."""
    unreadable: str = ""
    """Why a certificate that was shown cannot be read at all; `presented` is None then."""


def require_fields(what: str, fields: Iterable[tuple[str, object]]) -> None:
    """Raise `Unprocessable` for the first field that says nothing: absent, null, empty text, or 0."""
    for name, value in fields:
        if value in (None, "", 0):
            raise empty(what, name)


def empty(what: str, field: str) -> Unprocessable:
    """Return what is raised for a required field that says nothing."""
    return Unprocessable(f"{what} object contains empty fields. empty value for field: {field}")


def invalid(what: str, field: str, rule: str) -> Unprocessable:
    """Return what is raised for a field that says what cannot be (15, A7); `rule` says what can."""
    return Unprocessable(f"{what} object contains invalid fields. invalid value for field: {field}. {rule}")


def require_supported(place: str, value: str, supported: Iterable[str]) -> None:
    """Raise `Unprocessable` for a value that is none of the supported ones."""
    listed = tuple(supported)
    if value not in listed:
        raise Unprocessable(f"{place}: {value} is not yet supported.Supported:[{' '.join(listed)}]")


def require_name(what: str, name: str) -> None:
    """Raise `Unprocessable` for a name that no path could hold (15, A7)."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name) or name in (".", ".."):
        raise invalid(what, "name", f"Allowed: up to {LONGEST_NAME} of [A-Za-z0-9._-]")


def require_host(what: str, field: str, host: str) -> None:
    """Raise `Unprocessable` for what is neither a host name nor an IPv4 address (15, A7)."""
    if not _HOST.fullmatch(host):
        raise invalid(what, field, "Allowed: a host name without port")


def known_service_type(found: ServiceType | None) -> ServiceType:
    """Return a service type that is there; raise `NotFound`."""
    if found is None:
        raise NotFound(SERVICE_TYPE_GONE)
    return found


def require_host_of(service_type: ServiceType, host: str) -> None:
    """Raise `NotFound` for a host that is none of a service type's."""
    if host not in service_type.hosts:
        raise NotFound(HOST_GONE)


def without_secrets(text: str) -> str:
    """Return a path or a reason as it may be in a log: without what may be a key or a token, and not too long.

    Somebody may put a key or a token where a path belongs.
    """
    return _SECRET.sub("***", text)[:_LONGEST_LOGGED]
