"""Import of settings of the reference implementation (contract 16)."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ams.core.errors import Unusable
from ams.core.settings import Settings, is_plain_to_others, toml_text

_SAME_NAMES = (
    "port", "certificate_authorities_dir", "per_resource_auth", "service_token", "push_enabled", "push_server_host",
    "push_server_port", "push_tls_enabled", "verify_push_server", "push_worker_token", "proxy_hostname",
)  # fmt: skip
_NEW_NAMES = {"certificate": "cert", "certificate_key": "key"} | {name: name for name in _SAME_NAMES}
"""Keys with the same meaning here, and their names here."""
_NO_COUNTERPART = {
    "zookeeper_hosts": "the log is in the data folder",
    "kafka_znode": "the log is in the data folder",
    "broker_hosts": "the log is in the data folder",
    "store_host": "users, projects and topics are in the data folder",
    "store_db": "users, projects and topics are in the data folder",
}
"""Keys without counterpart, and why none is needed."""
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104  # the reference always listens there
NO_CERTIFICATE = (
    "certificate and certificate_key are not given, and the reference then took those of its host:"
    " set cert and key, or tokens and messages are served without TLS"
)


class Imported(NamedTuple):
    """An imported configuration: a TOML file, and notes for the operator."""

    toml: str
    notes: tuple[str, ...]


def _level(value: Any) -> str:
    level = str(value).lower()
    return {"warn": "warning", "fatal": "error", "panic": "error", "trace": "debug"}.get(level, level)


def _facilities(value: Any) -> str:
    wanted = {str(each).lower() for each in (value if isinstance(value, list) else [value])}
    if not wanted <= {"console", "syslog"}:
        raise ValueError
    return ",".join(sorted(wanted)) or "console"


_CONVERTERS: Mapping[str, Callable[[Any], str]] = {"log_level": _level, "log_facilities": _facilities}


def import_configuration(text: str) -> Imported:
    """Convert a configuration file of the reference. Raises `Unusable` if it is no JSON object or has bad values."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"this is no JSON: {error}") from None
    if not isinstance(read, dict):
        raise Unusable("this is no JSON object")
    given = {key: value for key, value in read.items() if value is not None}
    host = given.get("bind_ip")  # the reference reads it, but listens on all addresses (17.4, O13)
    values: dict[str, object] = {"host": host or ALL_ADDRESSES}
    notes = [f"bind_ip {host} is honoured now; the reference listened on all addresses"] if host else []
    for key, value in given.items():
        if key in _NEW_NAMES:
            values[_NEW_NAMES[key]] = value
        elif key in _CONVERTERS:
            try:
                values[key] = _CONVERTERS[key](value)
            except ValueError:
                raise Unusable(f"{key}: {value!r} has no counterpart") from None
        elif key == "auth_option":
            is_known = value in ("header", "both", "key")
            values[key] = value if is_known else "key"  # contract 3.1
            if not is_known:
                effect = "the reference then reads the query parameter only: key"
                notes.append(f"auth_option {value!r} is unknown; {effect}")
        elif key != "bind_ip":
            notes.append(f"{key} has no counterpart" + (f": {_NO_COUNTERPART[key]}" if key in _NO_COUNTERPART else ""))
    if is_plain_to_others(Settings.of(values, "the imported settings")):
        notes.append(NO_CERTIFICATE)
    return Imported(toml_table(values), tuple(notes))


def toml_table(values: Mapping[str, object]) -> str:
    """Write settings as a TOML file. Raises `Unusable` for a text that cannot be encoded."""
    toml = "".join(f"{name} = {toml_text(value)}\n" for name, value in values.items())
    try:
        toml.encode()
    except UnicodeEncodeError:
        raise Unusable("a text in it is not Unicode (half a surrogate pair)") from None
    return toml


def known_keys(
    given: Mapping[str, Any], kinds: Mapping[str, type], refusal: Callable[[str], Unusable]
) -> dict[str, Any]:
    """Return the known keys of a configuration. Raises `refusal(text)` for a value of another type."""
    known = {key: value for key, value in given.items() if key in kinds and value is not None}
    for key, value in known.items():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if type(value) is not kinds[key] or not all(isinstance(each, str) for each in parts):
            raise refusal(f"{key} is of another type")
    return known
