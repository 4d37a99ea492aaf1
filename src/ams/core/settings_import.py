"""Settings of the reference implementation, read into ours (contract 16)."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ams.core.errors import Unusable
from ams.core.settings import checked, is_plain_to_others, toml_text


class Imported(NamedTuple):
    """What came of a configuration: a TOML file of ours, and what a person should know."""

    toml: str
    notes: tuple[str, ...]


class _Counterpart(NamedTuple):
    setting: str
    convert: Callable[[Any], object]


def _same(value: Any) -> Any:
    return value


def _level(value: Any) -> str:
    level = str(value).lower()
    return {"warn": "warning", "fatal": "error", "panic": "error", "trace": "debug"}.get(level, level)


def _facilities(value: Any) -> str:
    wanted = {str(each).lower() for each in (value if isinstance(value, list) else [value])}
    if not wanted <= {"console", "syslog"}:
        raise ValueError
    return ",".join(sorted(wanted)) or "console"


_COUNTERPARTS = {
    "port": _Counterpart("port", _same),
    "certificate": _Counterpart("cert", _same),
    "certificate_key": _Counterpart("key", _same),
    "certificate_authorities_dir": _Counterpart("certificate_authorities_dir", _same),
    "per_resource_auth": _Counterpart("per_resource_auth", _same),
    "service_token": _Counterpart("service_token", _same),
    "push_enabled": _Counterpart("push_enabled", _same),
    "push_server_host": _Counterpart("push_server_host", _same),
    "push_server_port": _Counterpart("push_server_port", _same),
    "push_tls_enabled": _Counterpart("push_tls_enabled", _same),
    "verify_push_server": _Counterpart("verify_push_server", _same),
    "push_worker_token": _Counterpart("push_worker_token", _same),
    "proxy_hostname": _Counterpart("proxy_hostname", _same),
    "log_level": _Counterpart("log_level", _level),
    "log_facilities": _Counterpart("log_facilities", _facilities),
}
"""Keys whose value means here what it meant there."""

_WITHOUT = {
    "zookeeper_hosts": "the log is in the data folder",
    "kafka_znode": "the log is in the data folder",
    "broker_hosts": "the log is in the data folder",
    "store_host": "users, projects and topics are in the data folder",
    "store_db": "users, projects and topics are in the data folder",
}
"""Keys that have no counterpart, and why none is needed."""

EVERYWHERE = "0.0.0.0"  # noqa: S104  # where the reference listens, whatever it is told
NO_CERTIFICATE = (
    "certificate and certificate_key are not given, and the reference then took those of its host:"
    " set cert and key, or tokens and messages are served without TLS"
)


def imported(text: str) -> Imported:
    """Read a configuration file of the reference; raise `Unusable` for one that is no JSON object or has bad values."""
    given = _object(text)
    values, notes = _address(given)
    for key, value in given.items():
        if key in _COUNTERPARTS:
            counterpart = _COUNTERPARTS[key]
            values[counterpart.setting] = _converted(key, value, counterpart)
        elif key == "auth_option":
            values[key], more = _auth_option(value)
            notes += more
        elif key != "bind_ip":
            notes.append(f"{key} has no counterpart" + (f": {_WITHOUT[key]}" if key in _WITHOUT else ""))
    if is_plain_to_others(checked(values, "the imported settings")):
        notes.append(NO_CERTIFICATE)
    toml = "".join(f"{name} = {toml_text(value)}\n" for name, value in values.items())
    _check_text(toml)
    return Imported(toml, tuple(notes))


def _object(text: str) -> Mapping[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"this is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise Unusable("this is no JSON object")
    return {key: value for key, value in given.items() if value is not None}


def _converted(key: str, value: Any, counterpart: _Counterpart) -> object:
    try:
        return counterpart.convert(value)
    except ValueError:
        raise Unusable(f"{key}: {value!r} has no counterpart") from None


def _address(given: Mapping[str, Any]) -> tuple[dict[str, object], list[str]]:
    """Return where to listen: the reference reads bind_ip, and listens everywhere all the same (17.4, O13)."""
    host = given.get("bind_ip")
    if not host:
        return {"host": EVERYWHERE}, []
    return {"host": host}, [f"bind_ip {host} is honoured now; the reference listened on all addresses"]


def _auth_option(value: Any) -> tuple[object, list[str]]:
    """Return where tokens are read: what the reference does not know means to it the query only (contract 3.1)."""
    if value in ("header", "both", "key"):
        return value, []
    return "key", [f"auth_option {value!r} is unknown; the reference then reads the query parameter only: key"]


def _check_text(toml: str) -> None:
    try:
        toml.encode()
    except UnicodeEncodeError:
        raise Unusable("a text in it is not Unicode (half a surrogate pair)") from None
