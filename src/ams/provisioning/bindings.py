"""The calls to the certificate service that provisioning needs (authn contract 5 and 7)."""

import re
from urllib.parse import quote

from ams.client.errors import InvalidInput
from ams.client.wire.call import Call, json_body, nothing, reader
from ams.client.wire.values import Object

X509 = "x509"
_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")


class ServiceType(Object, frozen=True, kw_only=True, omit_defaults=True):
    """A kind of service, of which AMS is one."""

    name: str
    uuid: str
    hosts: list[str]


class Binding(Object, frozen=True, kw_only=True, omit_defaults=True):
    """A certificate's subject, and the user it stands for."""

    name: str
    service_uuid: str
    host: str
    auth_identifier: str
    unique_key: str
    auth_type: str = X509


class Bindings(Object, frozen=True, kw_only=True, omit_defaults=True):
    """All bindings of a host."""

    bindings: list[Binding]


def get_service_type(service_type: str) -> Call[ServiceType]:
    """Ask for a service type."""
    return Call("GET", f"/v1/service-types/{_segment(service_type)}", reader(ServiceType))


def list_bindings(service_type: str, host: str) -> Call[Bindings]:
    """Ask for all bindings of a host of a service type."""
    path = f"/v1/service-types/{_segment(service_type)}/hosts/{_segment(host)}/bindings"
    return Call("GET", path, reader(Bindings))


def create_binding(binding: Binding) -> Call[Binding]:
    """Bind a certificate to a user."""
    said = {
        "service_uuid": binding.service_uuid,
        "host": binding.host,
        "auth_identifier": binding.auth_identifier,
        "unique_key": binding.unique_key,
        "auth_type": binding.auth_type,
    }
    return Call("POST", f"/v1/bindings/{quote(binding.name, safe='')}", reader(Binding), json_body(said))


def update_binding(name: str, *, auth_identifier: str = "", unique_key: str = "") -> Call[Binding]:
    """Let a binding be of another certificate, or of another user; what is empty stays."""
    said = {"auth_identifier": auth_identifier, "unique_key": unique_key}
    body = json_body({field: value for field, value in said.items() if value})
    return Call("PUT", f"/v1/bindings/{quote(name, safe='')}", reader(Binding), body)


def delete_binding(name: str) -> Call[None]:
    """Let a certificate stand for nobody."""
    return Call("DELETE", f"/v1/bindings/{quote(name, safe='')}", nothing)


def _segment(text: str) -> str:
    if not _SEGMENT.fullmatch(text):
        raise InvalidInput(f"{text!r} cannot be the name of a service type or a host", 400, "BAD REQUEST")
    return quote(text, safe="")
