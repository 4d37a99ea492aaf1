"""What files declare of the certificate service: service types with their auth methods, and bindings.

Secrets are never in a file of declarations, nor in a plan: a file says where they are, and they are read when they are
sent.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ams.cli.apply.resources import Fields, Key, Kind
from ams.cli.exits import Usage
from ams.client.connection import read_secret
from ams.client.wire import authn
from ams.core.distinguished_names import normalised
from ams.core.errors import BadDocument
from ams.core.settings import environment
from ams.core.yaml_tree import Value, bad

SECRETS = ("access_key", "headers")
"""Fields of auth methods whose values are never shown, so that nobody can compare them."""

_METHODS = ("headers", "api-key")
_TYPE = ("hosts", "auth_types", "auth_method", "type", "verify_client_host", "auth_methods")
_BINDING = ("service_type", "host", "auth_identifier", "user", "unique_key", "auth_type", "issuer")


def named(said: Mapping[str, Value], section: str) -> list[tuple[str, Value]]:
    """Return the names and values of a section; raise `BadDocument` for what cannot be a name here (15, A7)."""
    found = said[section].mapping() if section in said else {}
    for name, value in found.items():
        if not authn.is_name(name):
            raise bad(value.place, f"{name!r} is no name: {authn.NAME_RULE}")
    return list(found.items())


def service_type_fields(value: Value) -> Fields:
    """Return the fields of a service type, without its auth methods."""
    said = value.mapping(_TYPE)
    if "hosts" not in said or not said["hosts"].values():
        raise bad(value.place, "a service type names its hosts")
    fields: dict[str, Any] = {"hosts": said["hosts"].texts()}
    if "auth_types" in said:
        fields["auth_types"] = said["auth_types"].texts()
    if "auth_method" in said:
        fields["auth_method"] = said["auth_method"].one_of(*_METHODS)
    if "type" in said:
        fields["type"] = said["type"].text()
    if "verify_client_host" in said:
        fields["verify_client_host"] = said["verify_client_host"].switch()
    return fields


def auth_methods(service_type: str, value: Value, folder: str) -> Iterator[tuple[Key, Value, Fields]]:
    """Yield the auth methods of a service type; names of files in them are relative to `folder`."""
    said = value.mapping(_TYPE)
    hosts = said["hosts"].texts()
    methods = said["auth_methods"].mapping() if "auth_methods" in said else {}
    for host, each in methods.items():
        if host not in hosts:
            raise bad(each.place, f"{host} is no host of service type {service_type}")
        yield Key(Kind.AUTH_METHOD, service_type, host), each, _auth_method(each, folder)


def binding_fields(value: Value) -> Fields:
    """Return the fields of a binding, its names in normal form."""
    said = value.mapping(_BINDING)
    missing = [name for name in ("service_type", "host", "auth_identifier") if name not in said]
    if missing:
        raise bad(value.place, f"a binding says its {missing[0]}")
    if ("user" in said) == ("unique_key" in said):
        raise bad(value.place, "a binding says its user, of AMS, or the unique_key of one elsewhere")
    fields: dict[str, Any] = {name: each.text() for name, each in said.items() if name != "issuer"}
    fields["auth_identifier"] = _subject(said["auth_identifier"])
    if "issuer" in said:
        fields["issuer"] = "" if said["issuer"].is_null else _subject(said["issuer"])
    return fields


def secret(where: Mapping[str, str]) -> str:
    """Read a secret from where a file of declarations says it is; raise `Usage` when it is not there."""
    if "file" in where:
        found = read_secret(where["file"], "secret")
        if not found:
            raise Usage(f"secret file {where['file']} is empty")
        return found
    found = environment().get(where["env"], "")
    if not found:
        raise Usage(f"the variable {where['env']}, which holds a secret, is not set")
    return found


def secrets(fields: Fields) -> dict[str, Any]:
    """Return the fields of an auth method that are secrets, with their values."""
    found: dict[str, Any] = {}
    if "access_key" in fields:
        found["access_key"] = secret(fields["access_key"])
    if "headers" in fields:
        found["headers"] = {name: secret(where) for name, where in fields["headers"].items()}
    return found


def same_secrets(name: str, declared: Any, existing: Any) -> bool:
    """Whether an auth method has such a secret: of headers their names are known, of an access key nothing."""
    return name == "access_key" or set(declared) == set(existing or ())


def _auth_method(value: Value, folder: str) -> Fields:
    said = value.mapping(("port", *SECRETS))
    if ("access_key" in said) == ("headers" in said):
        raise bad(value.place, "an auth method has headers, or an access_key, as its service type says")
    fields: dict[str, Any] = {"port": said["port"].number(1, 65535) if "port" in said else 443}
    if "access_key" in said:
        return {**fields, "access_key": where(said["access_key"], folder)}
    headers = {name: where(each, folder) for name, each in said["headers"].mapping().items()}
    if not headers:
        raise bad(said["headers"].place, "an auth method has one header at least")
    return {**fields, "headers": headers}


def where(value: Value, folder: str) -> Mapping[str, str]:
    """Return where a secret is: a file, whose name is relative to `folder`, or a variable."""
    # The text that stands there instead is not shown: it may be the secret itself.
    try:
        said = value.mapping(("file", "env"))
    except BadDocument:
        said = {}
    if len(said) != 1:
        raise bad(value.place, "a secret is not in this file: say {file: PATH} or {env: VARIABLE}")
    [(kind, each)] = said.items()
    return {kind: os.path.join(folder, each.text()) if kind == "file" else each.text()}


def _subject(value: Value) -> str:
    try:
        return normalised(value.text())
    except ValueError as error:
        raise bad(value.place, str(error)) from None
