"""Values of the certificate service: service types, auth methods, bindings, keys; and clients.

Times are milliseconds since the epoch; `None` if the contract omits the time.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

from cryptography import x509

from ams.core.clock import Milliseconds

ServiceTypeId = NewType("ServiceTypeId", str)
BindingId = NewType("BindingId", str)

X509 = "x509"  # auth type of logins by certificate
API_KEY, HEADERS = "api-key", "headers"  # how to ask a service for a user's token (contract 6)
PEER = "authn.peer"  # key of a request's `Peer` in the ASGI scope: set by the connection, replaced for trusted proxies
UNREADABLE = "Your certificate cannot be read"  # error text; the parser's reason is for the log

SERVICE_TYPE_GONE = "Service-type was not found"
HOST_GONE = "Host was not found"
AUTH_METHOD_GONE = "Auth method was not found"
BINDING_GONE = "Binding was not found"

_SECRET = re.compile(r"[0-9a-f]{40,}", re.IGNORECASE)  # possible keys or tokens in a text
_MAX_LOGGED_CHARACTERS = 1_000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceType:
    """A kind of service and its hosts (contract 5)."""

    uuid: ServiceTypeId
    name: str
    hosts: tuple[str, ...]
    auth_types: tuple[str, ...]
    auth_method: str  # `api-key` or `headers`
    type: str  # `ams`, `web-api` or `custom`: selects path and field in the settings
    verify_client_host: bool = False  # ours: the certificate must have a name of the client's address (A12)
    created_on: Milliseconds
    updated_on: Milliseconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthMethod:
    """How to ask one host of a service type for a user (contract 6). `repr` hides its secrets."""

    uuid: str
    service_uuid: ServiceTypeId
    host: str
    port: int
    type: str
    access_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    created_on: Milliseconds
    updated_on: Milliseconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectBinding:
    """A certificate's subject on one host of a service type, and its user there (contract 7)."""

    uuid: BindingId
    name: str
    service_uuid: ServiceTypeId
    host: str
    auth_identifier: str  # the subject in normal form (`ams.core.distinguished_names`); any text is accepted
    unique_key: str  # the user's id at the service, such as the UUID of an AMS user
    auth_type: str
    issuer: str = ""  # ours: normal form of the only accepted issuer; empty = any trusted CA (A8)
    subject_sha256: str = ""  # ours: hex SHA-256 of the whole subject (DER), stored at the first login (A8)
    created_on: Milliseconds
    updated_on: Milliseconds | None = None
    last_auth: Milliseconds | None = None  # the last login, to the minute (A5)


READ, WRITE = "read", "write"  # scopes of a key; write includes read (15, A15)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementKey:
    """A named key of the management interface. Its secret is shown once and not stored."""

    name: str
    scope: str
    created_on: Milliseconds


@dataclass(frozen=True, slots=True)
class Presented:
    """Certificates of a client that has proved to hold the leaf's key; the chain is not trusted."""

    leaf: x509.Certificate
    chain: tuple[bytes, ...] = ()  # DER; parsed for the search of a chain
    shown: bytes = b""  # the signed leaf, if it could be parsed only with a changed encoding


@dataclass(frozen=True, slots=True)
class Peer:
    """A client, as stated by a trusted proxy if there is one; `unreadable`: why its certificate cannot be parsed."""

    address: str
    presented: Presented | None = None
    unreadable: str = ""


def without_secrets(text: str) -> str:
    """Return a path or a reason for the log: shortened, without possible keys or tokens."""
    return _SECRET.sub("***", text)[:_MAX_LOGGED_CHARACTERS]
