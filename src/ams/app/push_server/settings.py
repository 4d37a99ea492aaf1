"""Settings of `ams push`: TOML, or the JSON of the reference with its error texts (push contract 6)."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from ams.core.errors import BadSettings, Unusable
from ams.core.settings import MAX_PORT, Mistakes, SettingsTable, Words, setting
from ams.core.settings_import import ALL_ADDRESSES, known_keys

_KINDS: Mapping[str, type] = {  # known keys; others are ignored
    "bind_ip": str, "bind_port": int, "certificate": str, "certificate_key": str, "certificate_authorities_dir": str,
    "ams_token": str, "ams_host": str, "ams_port": int, "verify_ssl": bool, "tls_enabled": bool,
    "trust_unknown_cas": bool, "log_level": str, "skip_subs_load": bool, "acl": list, "syslog_enabled": bool,
}  # fmt: skip
_TLS_KEYS = ("certificate", "certificate_key", "certificate_authorities_dir")
# In the order in which missing ones are reported; those of TLS only with it (P9).
_REQUIRED_KEYS = ("bind_port", *_TLS_KEYS, "ams_token", "ams_host", "ams_port", "log_level")


@dataclass(frozen=True, kw_only=True)
class PushSettings(SettingsTable):
    """All settings, with their defaults and purposes."""

    listed_by = "ams push --help"
    prefix = of_others = "AMS_PUSH_"  # other names with this prefix may be for `ams serve`

    endpoint: str = setting("", "Base URL of the service: https://HOST:PORT.")
    token: str = setting("", "Token of the push worker.", secret=True)
    token_file: str = setting("", "File that holds this token.")
    ca: str = setting("", "CA certificates (PEM) the service is checked by; empty = the system's.")
    host: str = setting("127.0.0.1", "Address to listen on for gRPC.")
    port: int = setting(9000, "Port to listen on for gRPC; 0 takes a free one.", most=MAX_PORT)
    tls_enabled: bool = setting(True, "Speak TLS, and let in only clients on the access list.")
    cert: str = setting("", "Certificate chain (PEM) of this server.")
    key: str = setting("", "Private key (PEM) of the certificate.")
    certificate_authorities_dir: str = setting("", "Folder of CA certificates (*.pem) that clients are checked by.")
    acl: Words = setting(
        (), "Clients let in, with semicolons: common names of their certificates, or whole distinguished names.",
        separator=";",
    )  # fmt: skip
    trust_unknown_cas: bool = setting(False, "Known from elsewhere; cannot be switched on.")
    verify_ssl: bool = setting(True, "Known from elsewhere; cannot be switched off.")
    skip_subs_load: bool = setting(False, "Deliver only what is activated over gRPC, and ask the service for nothing.")
    push_allow: str = setting(
        "", "Networks that push endpoints may be in, besides public addresses: 127.0.0.0/8,::1/128."
    )
    push_ca_file: str = setting("", "CA certificates (PEM) that push endpoints are checked by, besides the system's.")
    ops_host: str = setting("127.0.0.1", "Address of /healthz, /readyz and /metrics.")
    ops_port: int = setting(9001, "Port of /healthz, /readyz and /metrics; 0 takes a free one.", most=MAX_PORT)
    log_facilities: str = setting("console", "Where log lines go.", choices=("console", "syslog", "console,syslog"))

    @classmethod
    def variable(cls, name: str) -> str:
        """Return the environment variable of a setting; shared with other programs if the meaning is the same."""
        is_shared = name in ("endpoint", "token", "token_file", "ca") or name.startswith("push_")
        return f"AMS_{name.upper()}" if is_shared else super().variable(name)

    @classmethod
    def from_file(cls, path: str, warn: Callable[[str], None]) -> Mapping[str, object]:
        return _of_reference(path) if path.endswith(".json") else super().from_file(path, warn)

    def resolve_files(self) -> Self:
        if not self.token_file:
            return self
        if self.token:
            raise BadSettings("token and token_file exclude each other")
        try:
            with open(self.token_file, encoding="ascii") as file:
                return dataclasses.replace(self, token=file.read(4096).strip())
        except OSError as error:
            raise BadSettings(f"token_file {self.token_file}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise BadSettings(f"token_file {self.token_file} does not hold a token") from None

    def mistakes(self) -> Mistakes:
        said = "endpoint and token (or token_file) are needed: the service, and the push worker at it"
        yield not self.endpoint or not self.token, said
        said = "trust_unknown_cas is not possible: certificates of clients are checked by certificate_authorities_dir"
        yield self.trust_unknown_cas, said
        said = "verify_ssl = false is not possible: name your CA in ca, and that of endpoints in push_ca_file"
        yield not self.verify_ssl, said
        said = "tls_enabled needs cert, key and certificate_authorities_dir; --no-tls-enabled goes without"
        yield self.tls_enabled and not (self.cert and self.key and self.certificate_authorities_dir), said


def _of_reference(path: str) -> dict[str, Any]:
    """Return the settings in a file of the reference; missing switches are secure (P9). Raises `Unusable`."""
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise Unusable(f"Could not read configuration file: {path}: {error.strerror}") from error
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        raise _load_error(f"{path} is no JSON") from None
    if not isinstance(read, dict):
        raise _load_error(f"{path} is no JSON object")
    given = known_keys(read, _KINDS, _load_error)
    for key, value in given.items():
        if isinstance(value, int) and not 0 <= value <= MAX_PORT:
            raise _load_error(f"{key} is no port")
    tls = given.get("tls_enabled", True)
    for key in _REQUIRED_KEYS:
        if not given.get(key) and (tls or key not in _TLS_KEYS):
            raise Unusable(f"Empty value for field {key}")
    level = given["log_level"].lower()
    if level not in ("debug", "info", "warning", "error"):
        raise Unusable(f"Invalid log level {given['log_level']}")
    host = given["ams_host"]
    settings = {
        "host": given.get("bind_ip") or ALL_ADDRESSES,
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


def _load_error(text: str) -> Unusable:
    return Unusable(f"Could not load configuration file: {text}")
