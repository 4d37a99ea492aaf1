"""The reference's configuration file, read into our settings (contract 11, with its words for what is wrong)."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ams.core.errors import Unusable
from ams.core.settings_import import Imported, known_keys, toml_table

_EVERYWHERE = "0.0.0.0"  # noqa: S104  # where the reference listens
_REQUIRED = (
    "service_port", "mongo_host", "mongo_db", "certificate_authorities", "certificate", "certificate_key",
    "service_token", "supported_auth_types", "supported_auth_methods", "supported_service_types",
    "service_types_paths", "service_types_retrieval_fields",
)  # fmt: skip
"""In the order in which missing ones are reported."""
_KINDS: Mapping[str, type] = {
    "service_port": int, "mongo_host": str, "mongo_db": str, "certificate_authorities": str, "certificate": str,
    "certificate_key": str, "service_token": str, "supported_auth_types": list, "supported_auth_methods": list,
    "supported_service_types": list, "service_types_paths": dict, "service_types_retrieval_fields": dict,
    "verify_ssl": bool, "trust_unknown_cas": bool, "verify_certificate": bool, "client_cert_host_verification": bool,
    "syslog_enabled": bool, "server_read_timeout": int, "server_header_read_timeout": int, "server_write_timeout": int,
    "server_idle_timeout": int,
}  # fmt: skip
_SAME = (
    "service_token", "supported_auth_methods", "supported_service_types", "service_types_retrieval_fields",
    "verify_ssl", "trust_unknown_cas", "verify_certificate", "client_cert_host_verification", "server_read_timeout",
    "server_header_read_timeout", "server_write_timeout", "server_idle_timeout",
)  # fmt: skip
_OPEN = {"verify_ssl": False, "trust_unknown_cas": True, "verify_certificate": False}
"""Switches, and their values that let anybody log in."""

_IS_AUTHN = {"service_port", "certificate_authorities", "service_types_paths"}
"""Keys that only a configuration of the certificate service has."""

WITHOUT_OIDC = "supported_auth_types: oidc is left out: the reference takes it, and has no login for it"
WITHOUT_MONGO = (
    "mongo_host and mongo_db have no counterpart: bindings are in the data folder, or on PostgreSQL (registry)"
)


class AuthnImported(NamedTuple):
    """A converted configuration: values of our settings, and notes for the operator."""

    values: dict[str, Any]
    notes: tuple[str, ...]


def imported(text: str) -> Imported | None:
    """Write the reference's configuration of the service as our TOML; None for another file. Raises `Unusable`."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or not _IS_AUTHN & given.keys():
        return None
    found = converted(given)
    return Imported(toml_table(found.values), found.notes)


def from_file(path: str) -> AuthnImported:
    """Return the settings a file says; raises `Unusable` in the reference's words."""
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise Unusable(f"open {path}: {(error.strerror or '').lower()}") from error
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(str(error)) from None
    if not isinstance(given, dict):
        raise _unreadable("this is no JSON object")
    return converted(given)


def converted(given: Mapping[str, Any]) -> AuthnImported:
    """Return settings and notes, without any value in notes and errors; missing switches are the secure ones (A9)."""
    known = known_keys(given, _KINDS, _unreadable)
    for key in _REQUIRED:
        if not known.get(key):
            raise Unusable(f"config object contains empty fields. empty value for field: {key}")
    values = {
        "host": _EVERYWHERE,
        "port": known["service_port"],
        "cert": known["certificate"],
        "key": known["certificate_key"],
        "client_ca": known["certificate_authorities"],
        "supported_auth_types": [each for each in known["supported_auth_types"] if each != "oidc"],
        "service_types_paths": {
            # One sample of the reference has a brace too many.
            name: path.replace("{{identifier}}}", "{{identifier}}")
            for name, path in known["service_types_paths"].items()
        },
    }
    values |= {key: known[key] for key in _SAME if key in known}
    if known.get("syslog_enabled"):
        values["log_facilities"] = "console,syslog"
    return AuthnImported(values, _notes(given, known))


def _notes(given: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[str, ...]:
    notes = [WITHOUT_MONGO]
    if "oidc" in known["supported_auth_types"]:
        notes.append(WITHOUT_OIDC)
    notes += [
        f"{key} lets anybody log in as anybody: the service starts so only with development = true"
        for key, value in _OPEN.items()
        if known.get(key) is value
    ]
    notes += [
        f"{key} is not given: it is {str(not value).lower()} here" for key, value in _OPEN.items() if key not in known
    ]
    return (*notes, *(f"{key} has no counterpart" for key in given if key not in _KINDS))


def _unreadable(text: str) -> Unusable:
    return Unusable(f"Something went wrong while marshaling the json data. Error: {text}")
