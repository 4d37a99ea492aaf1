"""Rules all objects of the certificate service share, and the texts in which they are told (contract 4)."""

import re
from collections.abc import Iterable
from typing import TypeVar

from ams.authn.values import ServiceType
from ams.core.errors import NotFound, Unprocessable

T = TypeVar("T")

SERVICE_TYPE_GONE = "Service-type was not found"
HOST_GONE = "Host was not found"
AUTH_METHOD_GONE = "Auth method was not found"
BINDING_GONE = "Binding was not found"

LONGEST_NAME = 512
"""Characters; the names provisioning makes of three others stay far below."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?")


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
