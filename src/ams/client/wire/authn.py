"""The API of the certificate service as pure values: calls to send, answers to read (authn contract 3 to 8).

A client for these calls is made with a management key as its token. Secrets of auth methods are sent and never come
back; a new key is shown once.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from ams.client.errors import InvalidInput
from ams.client.wire.call import Call, reader
from ams.wire.authn import *
from ams.wire.base import Request

T = TypeVar("T")
N = TypeVar("N", str, str | None)

X509 = "x509"  # the auth type of logins by certificate
NAME_RULE = "letters, digits, '.', '_' and '-'"  # what names are made of, for people

_TYPES, _BINDINGS, _METHODS, _KEYS = _PATHS = ("/v1/service-types", "/v1/bindings", "/v1/authm", "/v1/keys")
_TYPE, _BINDING, _KEY = _TYPES + "/{service-type}", _BINDINGS + "/{binding}", _KEYS + "/{key}"
_HOST = _TYPE + "/hosts/{host}"
_METHOD = _HOST + "/authm"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_VARIABLE = re.compile(r"{([\w-]+)}")
_SUCCESSES = {"POST": frozenset({201, 200}), "DELETE": frozenset({204, 200})}


def _call(
    method: str, path: str, kind: type[T], *names: str, body: Request | None = None, query: dict[str, str] | None = None
) -> Call[T]:
    """Return a call of a route, whose answer is of a kind; `names` are the variables of its path."""
    segments = []
    for variable, name in zip(_VARIABLE.findall(path), names, strict=True):
        # An old installation may have names that nothing new may have (A7). A slash would lead to another resource.
        if not name or name in (".", "..") or "/" in name:
            raise InvalidInput(f"Invalid {variable} name", 400, "BAD REQUEST")
        segments.append(quote(name, safe=""))
    content = None if body is None else msgspec.json.encode(body)
    read = reader(kind)  # type: ignore[arg-type]  # a type is hashable
    successes = _SUCCESSES.get(method, frozenset({200}))
    return Call(method, _VARIABLE.sub("%s", path) % tuple(segments), read, content, query or {}, successes=successes)


def is_for_authn(call: Call[Any]) -> bool:
    """Return whether a call is one of these, apart from version and health, which both services have."""
    return call.path.startswith(_PATHS)


def is_name(text: str) -> bool:
    """Return whether something new may have this name (15, A7)."""
    return _NAME.fullmatch(text) is not None and text not in (".", "..")


list_service_types = partial(_call, "GET", _TYPES, ServiceTypes)
get_service_type = partial(_call, "GET", _TYPE, ServiceType)
delete_service_type = partial(_call, "DELETE", _TYPE, NoneType)
"""Remove a service type with all its auth methods and bindings (15, A3)."""
list_auth_methods = partial(_call, "GET", _METHODS, AuthMethods)
get_auth_method = partial(_call, "GET", _METHOD, AuthMethod)
delete_auth_method = partial(_call, "DELETE", _METHOD, NoneType)
"""Remove a host's auth method: logins there fail until another one is made."""
list_bindings = partial(_call, "GET", _BINDINGS, Bindings)
list_host_bindings = partial(_call, "GET", _HOST + "/bindings", Bindings)
get_binding = partial(_call, "GET", _BINDING, Binding)
delete_binding = partial(_call, "DELETE", _BINDING, NoneType)
"""Remove a binding: its certificate opens nothing any more, but a token already given stays valid."""
list_keys = partial(_call, "GET", _KEYS, Keys)
"""Ask which management keys there are (15, A15)."""
delete_key = partial(_call, "DELETE", _KEY, NoneType)
authx509 = partial(_call, "GET", _HOST + ":authx509", Token)
"""Ask for the token of the user that the client's certificate stands for (authn contract 8)."""


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
        name=_new("service-type", name), hosts=tuple(hosts), auth_types=tuple(auth_types), auth_method=auth_method,
        type=kind, verify_client_host=verify_client_host or None,
    )  # fmt: skip
    return _call("POST", _TYPES, ServiceType, body=body)


def update_service_type(service_type: str, changes: ServiceTypeFields) -> Call[ServiceType]:
    """Change what is given; lists are replaced. The type of a service type never changes."""
    _new("service-type", changes.name)
    return _call("PUT", _TYPE, ServiceType, service_type, body=changes)


def create_auth_method(
    service_type: str, host: str, port: int, *, access_key: str = "", headers: Mapping[str, str] | None = None
) -> Call[AuthMethod]:
    """Make a host's auth method: `access_key` for the kind `api-key`, `headers` for `headers`."""
    body = AuthMethodFields(host=host, port=port, access_key=access_key or None, headers=headers or None)
    return _call("POST", _TYPE + "/authm", AuthMethod, service_type, body=body)


def update_auth_method(service_type: str, host: str, changes: AuthMethodFields) -> Call[AuthMethod]:
    """Change what is given; headers are replaced as a whole (15, A2)."""
    return _call("PUT", _METHOD, AuthMethod, service_type, host, body=changes)


def find_binding(service_type: str, host: str, auth_identifier: str) -> Call[Bindings]:
    """Ask for the binding of a subject in normal form: a list of one; `NotFound` for none."""
    return _call("GET", _HOST + "/bindings", Bindings, service_type, host, query={"authID": auth_identifier})


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
        service_uuid=service_uuid, host=host, auth_identifier=auth_identifier, unique_key=unique_key,
        auth_type=auth_type, issuer=issuer or None,
    )  # fmt: skip
    return _call("POST", _BINDING, Binding, _new("binding", name), body=body)


def update_binding(binding: str, changes: BindingFields) -> Call[Binding]:
    """Change what is given; an empty issuer lets any trusted CA be the issuer again."""
    _new("binding", changes.name)
    return _call("PUT", _BINDING, Binding, binding, body=changes)


def create_key(name: str, scope: str) -> Call[Key]:
    """Make a management key with scope `read` or `write`; only this answer holds it."""
    return _call("POST", _KEY, Key, _new("key", name), body=KeyFields(scope))


def _new(kind: str, name: N) -> N:
    if name is not None and not is_name(name):
        raise InvalidInput(f"Invalid {kind} name: {NAME_RULE}", 400, "BAD REQUEST")
    return name


def without_secrets(method: AuthMethod) -> AuthMethod:
    """Return an auth method as it may be printed: names of headers, no values."""
    return msgspec.structs.replace(method, access_key="", headers=dict.fromkeys(method.headers, ""))
