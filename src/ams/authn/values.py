"""Records of the certificate service: service types, auth methods, bindings, keys; and clients.

Times are milliseconds since the epoch; `None` where the contract leaves a time out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

from cryptography import x509

from ams.core.clock import Milliseconds

ServiceTypeId = NewType("ServiceTypeId", str)
BindingId = NewType("BindingId", str)

X509 = "x509"  # the auth type of logins by certificate
API_KEY, HEADERS = "api-key", "headers"  # how a service is asked for a user's token (contract 6)
PEER = "authn.peer"
"""Key of the ASGI scope where a request's `Peer` is: set by the connection, changed for trusted proxies."""
UNREADABLE = "Your certificate cannot be read"  # the error text; what the parser says is for a log

SERVICE_TYPE_GONE = "Service-type was not found"
HOST_GONE = "Host was not found"
AUTH_METHOD_GONE = "Auth method was not found"
BINDING_GONE = "Binding was not found"

_SECRET = re.compile(r"[0-9a-f]{40,}", re.IGNORECASE)  # what may be a key or a token, in a text where none belongs
_LONGEST_LOGGED = 1_000  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceType:
    """A kind of service and the hosts it runs on (contract 5)."""

    uuid: ServiceTypeId
    name: str
    hosts: tuple[str, ...]
    auth_types: tuple[str, ...]
    auth_method: str  # `api-key` or `headers`
    type: str  # `ams`, `web-api` or `custom`: picks path and field of the settings
    verify_client_host: bool = False  # ours: a client's address must be one of its certificate's names (A12)
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
    access_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    created_on: Milliseconds
    updated_on: Milliseconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A certificate's subject on one host of a service type, and the user it stands for there (contract 7)."""

    uuid: BindingId
    name: str
    service_uuid: ServiceTypeId
    host: str
    auth_identifier: str  # the subject in normal form (`ams.core.distinguished_names`); any text is taken
    unique_key: str  # the user's id at the service, such as the UUID of an AMS user
    auth_type: str
    issuer: str = ""  # ours: the normal form of the only issuer that is believed; empty = any trusted CA (A8)
    subject_sha256: str = ""
    """Ours: hex SHA-256 of the whole subject (DER), kept at the first login; empty = none yet (A8)."""
    created_on: Milliseconds
    updated_on: Milliseconds | None = None
    last_auth: Milliseconds | None = None  # the last login, to the minute (A5)


READ, WRITE = "read", "write"  # scopes of a key: reading, or writing too (15, A15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A named key of the management interface; the secret itself is shown once and kept nowhere."""

    name: str
    scope: str
    created_on: Milliseconds


@dataclass(frozen=True, slots=True)
class Presented:
    """Certificates of a client, who has proved to hold the leaf's key; the chain is not trusted."""

    leaf: x509.Certificate
    chain: tuple[bytes, ...] = ()  # DER; read when a chain is looked for
    shown: bytes = b""  # the leaf as it was signed, where it could be read only with a change of its encoding


@dataclass(frozen=True, slots=True)
class Peer:
    """A client, behind a trusted proxy as that states it; `unreadable` says why its certificate cannot be read."""

    address: str
    presented: Presented | None = None
    unreadable: str = ""


def without_secrets(text: str) -> str:
    """Return a path or a reason for a log, cut, and without texts that may be keys or tokens."""
    return _SECRET.sub("***", text)[:_LONGEST_LOGGED]
