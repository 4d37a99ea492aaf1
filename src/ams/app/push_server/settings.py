"""Settings of `ams push`: one typed table, read from flags, then the environment, then a file, then defaults.

In the manner of `ams.core.settings`, whose flags and variables it shares where both mean the same (`push_allow`,
`push_ca_file`). The file is TOML with these names, or the JSON of the reference (`ams.app.push_server.json_config`).
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ams.app.push_server.json_config import imported
from ams.core.errors import BadSettings
from ams.core.settings import flag, read_value, truth


def _setting(default: Any, variable: str, text: str, *, secret: bool = False, choices: tuple[str, ...] = ()) -> Any:
    told = {"variable": variable, "help": text, "secret": secret, "choices": choices}
    return field(default=default, repr=not secret, metadata=told)


@dataclass(frozen=True, kw_only=True)
class PushSettings:
    """Everything that can be set, with its default, its environment variable, and what it is for."""

    endpoint: str = _setting("", "AMS_ENDPOINT", "Base URL of the service: https://HOST:PORT.")
    token: str = _setting("", "AMS_TOKEN", "Token of the push worker.", secret=True)
    token_file: str = _setting("", "AMS_TOKEN_FILE", "File that holds this token.")
    ca: str = _setting("", "AMS_CA", "CA certificates (PEM) the service is checked by; empty = the system's.")
    host: str = _setting("127.0.0.1", "AMS_PUSH_HOST", "Address to listen on for gRPC.")
    port: int = _setting(9000, "AMS_PUSH_PORT", "Port to listen on for gRPC; 0 takes a free one.")
    tls_enabled: bool = _setting(True, "AMS_PUSH_TLS_ENABLED", "Speak TLS, and let in only clients on the access list.")
    cert: str = _setting("", "AMS_PUSH_CERT", "Certificate chain (PEM) of this server.")
    key: str = _setting("", "AMS_PUSH_KEY", "Private key (PEM) of the certificate.")
    certificate_authorities_dir: str = _setting(
        "", "AMS_PUSH_CERTIFICATE_AUTHORITIES_DIR", "Folder of CA certificates (*.pem) that clients are checked by."
    )
    acl: tuple[str, ...] = _setting(
        (), "AMS_PUSH_ACL",
        "Clients let in, with semicolons: common names of their certificates, or whole distinguished names.",
    )  # fmt: skip
    trust_unknown_cas: bool = _setting(
        False, "AMS_PUSH_TRUST_UNKNOWN_CAS", "Known from elsewhere; cannot be switched on."
    )
    verify_ssl: bool = _setting(True, "AMS_PUSH_VERIFY_SSL", "Known from elsewhere; cannot be switched off.")
    skip_subs_load: bool = _setting(
        False, "AMS_PUSH_SKIP_SUBS_LOAD", "Deliver only what is activated over gRPC, and ask the service for nothing."
    )
    push_allow: str = _setting(
        "", "AMS_PUSH_ALLOW", "Networks that push endpoints may be in, besides public addresses: 127.0.0.0/8,::1/128."
    )
    push_ca_file: str = _setting(
        "", "AMS_PUSH_CA_FILE", "CA certificates (PEM) that push endpoints are checked by, besides the system's."
    )
    ops_host: str = _setting("127.0.0.1", "AMS_PUSH_OPS_HOST", "Address of /healthz, /readyz and /metrics.")
    ops_port: int = _setting(9001, "AMS_PUSH_OPS_PORT", "Port of /healthz, /readyz and /metrics; 0 takes a free one.")
    log_level: str = _setting(
        "info", "AMS_PUSH_LOG_LEVEL", "Least level that is logged.", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _setting("console", "AMS_PUSH_LOG_FORMAT", "How log lines look.", choices=("console", "json"))
    log_facilities: str = _setting(
        "console", "AMS_PUSH_LOG_FACILITIES", "Where log lines go.", choices=("console", "syslog", "console,syslog")
    )


FIELDS = dataclasses.fields(PushSettings)


def load(flags: Mapping[str, object], environment: Mapping[str, str], config: str | None = None) -> PushSettings:
    """Put the settings together; `config` is a file in TOML, or JSON if it is named so.

    Raises `BadSettings` with one line, and `Unusable` with the reference's own words for a file in JSON.
    """
    values = _from_file(config) if config else {}
    named = {each.metadata["variable"]: each for each in FIELDS}
    values |= {
        each.name: read_value(each, environment[variable], variable, _typed)
        for variable, each in named.items()
        if environment.get(variable)
    }
    given = {each.name: flags.get(each.name) for each in FIELDS}
    values |= {
        each.name: read_value(each, given[each.name], flag(each.name), _typed)
        for each in FIELDS
        if given[each.name] is not None
    }
    settings = _with_token(PushSettings(**values))
    _check(settings)
    return settings


def shown(settings: PushSettings) -> list[tuple[str, str, str, str]]:
    """Return rows for people: name, environment variable, value (secrets masked), help."""
    return [
        (each.name, each.metadata["variable"], _display(each, getattr(settings, each.name)), each.metadata["help"])
        for each in FIELDS
    ]


def _display(setting: "dataclasses.Field[Any]", value: Any) -> str:
    if setting.metadata["secret"] and value:
        return "***"
    if isinstance(value, tuple):
        return ";".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_file(path: str) -> dict[str, Any]:
    if path.endswith(".json"):
        return imported(path)
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"settings file {path}: {error}") from error
    known = {each.name: each for each in FIELDS}
    if unknown := sorted(set(table) - set(known)):
        raise BadSettings(f"settings file {path}: unknown key {unknown[0]!r}; `ams push --help` lists what there is")
    return {name: read_value(known[name], value, f"{name} in {path}", _typed) for name, value in table.items()}


def _typed(setting: "dataclasses.Field[Any]", value: object) -> Any:
    if isinstance(setting.default, bool):
        return value if isinstance(value, bool) else truth(str(value))
    if isinstance(setting.default, int):
        return _port(value)
    if isinstance(setting.default, tuple):
        entries = value.split(";") if isinstance(value, str) else value
        if not isinstance(entries, list) or not all(isinstance(each, str) for each in entries):
            raise TypeError
        return tuple(each.strip() for each in entries if each.strip())
    if not isinstance(value, str):
        raise TypeError
    return value


def _port(value: object) -> int:
    number = int(str(value))
    if not 0 <= number <= 65535:
        raise ValueError
    return number


def _with_token(settings: PushSettings) -> PushSettings:
    if not settings.token_file:
        return settings
    if settings.token:
        raise BadSettings("token and token_file exclude each other")
    try:
        with open(settings.token_file, encoding="ascii") as file:
            return dataclasses.replace(settings, token=file.read(4096).strip())
    except OSError as error:
        raise BadSettings(f"token_file {settings.token_file}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadSettings(f"token_file {settings.token_file} does not hold a token") from None


def _check(settings: PushSettings) -> None:
    if not settings.endpoint or not settings.token:
        raise BadSettings("endpoint and token (or token_file) are needed: the service, and the push worker at it")
    if settings.trust_unknown_cas:
        raise BadSettings(
            "trust_unknown_cas is not possible: certificates of clients are checked by certificate_authorities_dir"
        )
    if not settings.verify_ssl:
        raise BadSettings(
            "verify_ssl = false is not possible: name your CA in ca, and that of endpoints in push_ca_file"
        )
    if settings.tls_enabled and not (settings.cert and settings.key and settings.certificate_authorities_dir):
        raise BadSettings("tls_enabled needs cert, key and certificate_authorities_dir; --no-tls-enabled goes without")
