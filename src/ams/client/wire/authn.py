"""The API of the certificate service as pure values: calls to send, answers to read (authn contract 3 to 8).

A client for these calls is made with a management key as its token. Secrets of auth methods are sent and never come
back; a new key is shown once.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from ams.client.errors import InvalidInput
from ams.client.wire.call import Call, json_body, nothing, reader
from ams.wire.authn import AuthMethod as AuthMethod
from ams.wire.authn import AuthMethodFields as AuthMethodFields
from ams.wire.authn import AuthMethods as AuthMethods
from ams.wire.authn import Binding as Binding
from ams.wire.authn import BindingFields as BindingFields
from ams.wire.authn import Bindings as Bindings
from ams.wire.authn import Key as Key
from ams.wire.authn import KeyFields
from ams.wire.authn import Keys as Keys
from ams.wire.authn import ServiceType as ServiceType
from ams.wire.authn import ServiceTypeFields as ServiceTypeFields
from ams.wire.authn import ServiceTypes as ServiceTypes
from ams.wire.authn import Token as Token

N = TypeVar("N", str, str | None)

X509 = "x509"  # the auth type of logins by certificate
NAME_RULE = "letters, digits, '.', '_' and '-'"  # what names are made of, for people

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_MADE, _GONE = frozenset({201, 200}), frozenset({204, 200})
_PATHS = ("/v1/service-types", "/v1/bindings", "/v1/authm", "/v1/keys")


def is_for_authn(call: Call[Any]) -> bool:
    """Return whether a call is one of these, apart from version and health, which both services have."""
    return call.path.startswith(_PATHS)


def is_name(text: str) -> bool:
    """Return whether something new may have this name (15, A7)."""
    return _NAME.fullmatch(text) is not None and text not in (".", "..")


list_service_types = partial(Call, "GET", "/v1/service-types", reader(ServiceTypes))
"""Ask for all service types."""


def get_service_type(name: str) -> Call[ServiceType]:
    """Ask for one service type."""
    return Call("GET", _service_type_path(name), reader(ServiceType))


def create_service_type(
    name: str,
    hosts: Sequence[str],
    *,
    auth_types: Sequence[str] = (X509,),
    auth_method: str = "headers",
    kind: str = "ams",
    verify_client_host: bool = False,
) -> Call[ServiceType]:
    """Make a service type of the type `kind`; `Conflict` when the name is taken."""
    body = ServiceTypeFields(
        name=_new("service-type", name),
        hosts=tuple(hosts),
        auth_types=tuple(auth_types),
        auth_method=auth_method,
        type=kind,
        verify_client_host=verify_client_host or None,
    )
    return Call("POST", "/v1/service-types", reader(ServiceType), json_body(body), successes=_MADE)


def update_service_type(service_type: str, changes: ServiceTypeFields) -> Call[ServiceType]:
    """Change what is given; lists are replaced. The type of a service type never changes."""
    _new("service-type", changes.name)
    return Call("PUT", _service_type_path(service_type), reader(ServiceType), json_body(changes))


def delete_service_type(name: str) -> Call[None]:
    """Remove a service type with all its auth methods and bindings (15, A3)."""
    return Call("DELETE", _service_type_path(name), nothing, successes=_GONE)


list_auth_methods = partial(Call, "GET", "/v1/authm", reader(AuthMethods))
"""Ask for the auth methods of all service types."""


def get_auth_method(service_type: str, host: str) -> Call[AuthMethod]:
    """Get the auth method of a host."""
    return Call("GET", _host_path(service_type, host, "/authm"), reader(AuthMethod))


def create_auth_method(
    service_type: str, host: str, port: int, *, access_key: str = "", headers: Mapping[str, str] | None = None
) -> Call[AuthMethod]:
    """Make a host's auth method: `access_key` for the kind `api-key`, `headers` for `headers`."""
    body = AuthMethodFields(host=host, port=port, access_key=access_key or None, headers=headers or None)
    return Call(
        "POST", f"{_service_type_path(service_type)}/authm", reader(AuthMethod), json_body(body), successes=_MADE
    )


def update_auth_method(service_type: str, host: str, changes: AuthMethodFields) -> Call[AuthMethod]:
    """Change what is given; headers are replaced as a whole (15, A2)."""
    return Call("PUT", _host_path(service_type, host, "/authm"), reader(AuthMethod), json_body(changes))


def delete_auth_method(service_type: str, host: str) -> Call[None]:
    """Remove a host's auth method: logins there fail until another one is made."""
    return Call("DELETE", _host_path(service_type, host, "/authm"), nothing, successes=_GONE)


list_bindings = partial(Call, "GET", "/v1/bindings", reader(Bindings))
"""Ask for all bindings."""


def list_host_bindings(service_type: str, host: str) -> Call[Bindings]:
    """Ask for the bindings on one host."""
    return Call("GET", _host_path(service_type, host, "/bindings"), reader(Bindings))


def find_binding(service_type: str, host: str, auth_identifier: str) -> Call[Bindings]:
    """Ask for the binding of a subject in normal form: a list of one; `NotFound` for none."""
    query = {"authID": auth_identifier}
    return Call("GET", _host_path(service_type, host, "/bindings"), reader(Bindings), query=query)


def get_binding(name: str) -> Call[Binding]:
    """Ask for one binding."""
    return Call("GET", _binding_path(name), reader(Binding))


def create_binding(
    name: str,
    service_uuid: str,
    host: str,
    auth_identifier: str,
    unique_key: str,
    *,
    auth_type: str = X509,
    issuer: str = "",
) -> Call[Binding]:
    """Bind a subject in normal form to a user; `Conflict` when the name or the subject is taken there."""
    body = BindingFields(
        service_uuid=service_uuid,
        host=host,
        auth_identifier=auth_identifier,
        unique_key=unique_key,
        auth_type=auth_type,
        issuer=issuer or None,
    )
    return Call("POST", f"/v1/bindings/{_new('binding', name)}", reader(Binding), json_body(body), successes=_MADE)


def update_binding(binding: str, changes: BindingFields) -> Call[Binding]:
    """Change what is given; an empty issuer lets any trusted CA be the issuer again."""
    _new("binding", changes.name)
    return Call("PUT", _binding_path(binding), reader(Binding), json_body(changes))


def delete_binding(name: str) -> Call[None]:
    """Remove a binding: its certificate opens nothing any more, but a token already given stays valid."""
    return Call("DELETE", _binding_path(name), nothing, successes=_GONE)


list_keys = partial(Call, "GET", "/v1/keys", reader(Keys))
"""Ask which management keys there are (15, A15)."""


def create_key(name: str, scope: str) -> Call[Key]:
    """Make a management key with scope `read` or `write`; only this answer holds it."""
    return Call("POST", f"/v1/keys/{_new('key', name)}", reader(Key), json_body(KeyFields(scope)), successes=_MADE)


def delete_key(name: str) -> Call[None]:
    """Revoke a management key."""
    return Call("DELETE", f"/v1/keys/{_segment('key', name)}", nothing, successes=_GONE)


def authx509(service_type: str, host: str) -> Call[Token]:
    """Ask for the token of the user that the client's certificate stands for (authn contract 8)."""
    return Call("GET", _host_path(service_type, host, ":authx509"), reader(Token))


def _service_type_path(name: str) -> str:
    return f"/v1/service-types/{_segment('service-type', name)}"


def _host_path(service_type: str, host: str, rest: str) -> str:
    return f"{_service_type_path(service_type)}/hosts/{_segment('host', host)}{rest}"


def _binding_path(name: str) -> str:
    return f"/v1/bindings/{_segment('binding', name)}"


def _new(kind: str, name: N) -> N:
    if name is not None and not is_name(name):
        raise InvalidInput(f"Invalid {kind} name: {NAME_RULE}", 400, "BAD REQUEST")
    return name


def _segment(kind: str, text: str) -> str:
    """Return a name as it stands in a path, also one that nothing new may have but an old installation left (A7).

    With a slash it would ask for another resource than the one named.
    """
    if not text or text in (".", "..") or "/" in text:
        raise InvalidInput(f"Invalid {kind} name", 400, "BAD REQUEST")
    return quote(text, safe="")


def without_secrets(method: AuthMethod) -> AuthMethod:
    """Return an auth method as it may be printed: names of headers, no values."""
    return msgspec.structs.replace(method, access_key="", headers=dict.fromkeys(method.headers, ""))
