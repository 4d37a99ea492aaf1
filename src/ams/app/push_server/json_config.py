"""The reference's configuration file, read into our settings (push contract 6, with its words for what is wrong)."""

import json
from collections.abc import Mapping
from typing import Any

from ams.core.errors import Unusable

UNREADABLE = "Could not read configuration file"
UNLOADABLE = "Could not load configuration file"

_LEVELS = ("debug", "info", "warning", "error")
_EVERYWHERE = "0.0.0.0"  # noqa: S104  # where the reference listens unless it is told otherwise
_KINDS: Mapping[str, type] = {
    "bind_ip": str, "bind_port": int, "certificate": str, "certificate_key": str, "certificate_authorities_dir": str,
    "ams_token": str, "ams_host": str, "ams_port": int, "verify_ssl": bool, "tls_enabled": bool,
    "trust_unknown_cas": bool, "log_level": str, "skip_subs_load": bool, "acl": list, "syslog_enabled": bool,
}  # fmt: skip
"""Keys that are known; others are passed over."""
_OF_TLS = ("certificate", "certificate_key", "certificate_authorities_dir")
_REQUIRED = ("bind_port", *_OF_TLS, "ams_token", "ams_host", "ams_port", "log_level")
"""In the order in which a missing one is told; those of TLS only with it (P9)."""


def imported(path: str) -> dict[str, Any]:
    """Return the settings a file says; missing switches are the secure ones (P9).

    Raises `Unusable` in the reference's words; no value of the file is in them but a level of logs.
    """
    given = _read(path)
    tls = given.get("tls_enabled", True)
    for key in _REQUIRED:
        if not given.get(key) and (tls or key not in _OF_TLS):
            raise Unusable(f"Empty value for field {key}")
    level = given["log_level"].lower()
    if level not in _LEVELS:
        raise Unusable(f"Invalid log level {given['log_level']}")
    host = given["ams_host"]
    settings = {
        "host": given.get("bind_ip") or _EVERYWHERE,
        "port": given["bind_port"],
        "cert": given.get("certificate", "") if tls else "",
        "key": given.get("certificate_key", "") if tls else "",
        "certificate_authorities_dir": given.get("certificate_authorities_dir", "") if tls else "",
        "token": given["ams_token"],
        "endpoint": f"https://{f'[{host}]' if ':' in host else host}:{given['ams_port']}",
        "tls_enabled": tls,
        "log_level": level,
        "acl": tuple(given.get("acl", ())),
        "log_facilities": "console,syslog" if given.get("syslog_enabled") else "console",
    }
    same = ("verify_ssl", "trust_unknown_cas", "skip_subs_load")
    return settings | {key: given[key] for key in same if key in given}


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise Unusable(f"{UNREADABLE}: {path}: {error.strerror}") from error
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise Unusable(f"{UNLOADABLE}: {path} is no JSON") from None
    if not isinstance(given, dict):
        raise Unusable(f"{UNLOADABLE}: {path} is no JSON object")
    known = {key: value for key, value in given.items() if key in _KINDS and value is not None}
    for key, value in known.items():
        if type(value) is not _KINDS[key] or (isinstance(value, list) and not _all_texts(value)):
            raise Unusable(f"{UNLOADABLE}: {key} is of another type")
        if isinstance(value, int) and not 0 <= value <= 65535:
            raise Unusable(f"{UNLOADABLE}: {key} is no port")
    return known


def _all_texts(values: list[Any]) -> bool:
    return all(isinstance(each, str) for each in values)
