"""Settings of `ams authn serve`: one typed table, read from flags, then the environment, then a file, then defaults.

In the manner of `ams.core.settings`. The file is TOML with these names, or the JSON of the reference
(`ams.authn.json_config`). The defaults are the secure ones (contract 15, A9).
"""

import dataclasses
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ams.authn.json_config import imported
from ams.authn.values import API_KEY, HEADERS, X509
from ams.core.distinguished_names import normalised
from ams.core.errors import BadSettings
from ams.core.settings import CLIENT_VARIABLES, Seconds, duration_seconds, duration_text, flag, read_value, truth
from ams.outgoing.guard import networks

Pairs = tuple[tuple[str, str], ...]
"""Names and their values; written as a JSON object, or as a table of TOML."""

OIDC = "oidc"
_PASSWORD_IN_URL = re.compile(r"//[^?@]*:[^?@]*@|[?&](ssl)?password=")


def _setting(default: Any, text: str, *, secret: bool = False, choices: tuple[str, ...] = ()) -> Any:
    told = {"help": text, "secret": secret, "choices": choices}
    return field(default=default, repr=not secret, metadata=told)


@dataclass(frozen=True, kw_only=True)
class AuthnSettings:
    """Everything that can be set, with its default and what it is for."""

    data: str = _setting("./ams-authn", "Folder for the database and the keys; may be that of ams serve.")
    host: str = _setting("127.0.0.1", "Address to listen on.")
    port: int = _setting(8443, "Port of the API; 0 takes a free one.")
    ops_host: str = _setting("127.0.0.1", "Address of /healthz, /readyz and /metrics.")
    ops_port: int = _setting(8444, "Port of /healthz, /readyz and /metrics; 0 takes a free one.")
    cert: str = _setting("", "Certificate chain (PEM) to serve with; read again on change and on SIGHUP.")
    key: str = _setting("", "Private key (PEM) of the certificate.")
    tls_self_signed: bool = _setting(False, "Serve with a local CA and certificate made in the data folder.")
    client_ca: str = _setting(
        "", "Folder of the CAs that clients' certificates are checked by, and of their revocation lists."
    )
    registry: str = _setting(
        "sqlite", "Where bindings are kept: sqlite, in the data folder, or postgresql://USER@HOST/DATABASE."
    )
    registry_password: str = _setting(
        "", "Password of the user at PostgreSQL; empty = none, or as libpq finds it.", secret=True
    )
    secrets_key: str = _setting(
        "", "64 hex digits that encrypt stored secrets; empty = a key file made in the data folder.", secret=True
    )
    service_token: str = _setting(
        "", "The management key; empty = one made at the first start, in authn.key of the data folder.", secret=True
    )
    ams_endpoint: str = _setting("", "Base URL of an AMS whose service_admin tokens manage this service too.")
    ams_ca: str = _setting("", "CA certificates (PEM) that AMS is checked by; empty = the system's.")
    supported_auth_types: tuple[str, ...] = _setting((X509,), "What bindings may identify: x509.")
    supported_auth_methods: tuple[str, ...] = _setting(
        (API_KEY, HEADERS), "How services may be asked for a user: api-key, headers."
    )
    supported_service_types: tuple[str, ...] = _setting(("ams", "web-api", "custom"), "Kinds of services there may be.")
    service_types_paths: Pairs = _setting(
        (
            ("ams", "/v1/users:byUUID/{{identifier}}"),
            ("web-api", "/api/v2/users:byID/{{identifier}}?export=flat"),
        ),
        "Where each kind of service is asked for a user.",
    )
    service_types_retrieval_fields: Pairs = _setting(
        (("ams", "token"), ("web-api", "api_key")), "Which field of the answer is the token."
    )
    verify_ssl: bool = _setting(True, "Check the certificates of services; off with development only.")
    service_ca: str = _setting("", "CA certificates (PEM) that services are checked by, besides the system's.")
    trust_unknown_cas: bool = _setting(False, "Take clients' certificates of any CA; with development only.")
    verify_certificate: bool = _setting(
        True, "Check dates, usage and revocation of clients' certificates; off with development only."
    )
    client_cert_host_verification: bool = _setting(
        False, "Whether a client's address must be one of its certificate's names, at every service type."
    )
    development: bool = _setting(False, "Allow what lets anybody in: for trying things out, never with real users.")
    revocation: str = _setting(
        "refuse", "What becomes of a certificate whose revocation list cannot be had, or is too old.",
        choices=("refuse", "warn"),
    )  # fmt: skip
    ocsp: bool = _setting(True, "Ask the OCSP responder of a certificate that names no revocation list.")
    fetch_allow: tuple[str, ...] = _setting(
        (), "Networks that revocation lists may be fetched from, besides public addresses."
    )
    token_seconds: Seconds = _setting(Seconds(1.0), "How long a service's answer is used again; 0 = never.")
    failed_logins_per_minute: int = _setting(30, "Failed logins of one address; beyond them 429. 0 = no limit.")
    audit_days: int = _setting(0, "Days that events stay in the audit log's table; 0 = for ever.")
    proxy_protocol: bool = _setting(False, "Connections begin with the PROXY protocol; needs proxies.")
    proxies: tuple[str, ...] = _setting((), "Networks that connections come from with proxy_protocol.")
    proxy_header: str = _setting("", "Header in which a proxy tells a client's certificate; needs proxy_names.")
    proxy_names: tuple[str, ...] = _setting(
        (), "Subjects of the certificates of those proxies, with semicolons between them."
    )
    server_read_timeout: Seconds = _setting(Seconds(5.0), "Time a client has to send a request.")
    server_header_read_timeout: Seconds = _setting(
        Seconds(5.0), "Time a client has for a handshake, and again for the head of a request."
    )
    server_write_timeout: Seconds = _setting(
        Seconds(15.0), "Time until an answer is sent; whatever it takes to make it ends a tenth before."
    )
    server_idle_timeout: Seconds = _setting(Seconds(60.0), "How long an idle connection is kept.")
    max_connections: int = _setting(10_000, "Open connections; beyond them 503.")
    log_level: str = _setting("info", "Least level that is logged.", choices=("debug", "info", "warning", "error"))
    log_format: str = _setting("console", "How log lines look.", choices=("console", "json"))
    log_facilities: str = _setting(
        "console", "Where log lines go: to stderr (console), to the machine's syslog, or to both.",
        choices=("console", "syslog", "console,syslog"),
    )  # fmt: skip


FIELDS = dataclasses.fields(AuthnSettings)
_BY_NAME = {each.name: each for each in FIELDS}
_PORTS = ("port", "ops_port")


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    # AMS_AUTHN_KEY is the management key that clients give: where both are set, a secret is no name of a file.
    return "AMS_AUTHN_CERT_KEY" if name == "key" else f"AMS_AUTHN_{name.upper()}"


def load(
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    config: str | None = None,
    warn: Callable[[str], None] = lambda line: None,
) -> AuthnSettings:
    """Put the settings together; `config` is a file in TOML, or the reference's JSON if it is named so.

    Tells `warn` of what is set and is none of ours. Raises `BadSettings` with one line, and `Unusable` with the
    reference's own words for a file in JSON.
    """
    values = _from_file(config, warn) if config else {}
    _tell_unknown(environment, warn)
    values |= {
        each.name: read_value(each, environment[variable(each.name)], variable(each.name), _typed)
        for each in FIELDS
        if environment.get(variable(each.name))
    }
    values |= {
        each.name: read_value(each, flags[each.name], flag(each.name), _typed)
        for each in FIELDS
        if flags.get(each.name) is not None
    }
    settings = AuthnSettings(**values)
    _check(settings)
    return settings


def _tell_unknown(environment: Mapping[str, str], warn: Callable[[str], None]) -> None:
    known = {variable(each.name) for each in FIELDS} | CLIENT_VARIABLES
    for name in sorted(environment):
        if name.startswith("AMS_AUTHN_") and name not in known:
            warn(f"unknown setting {name} in the environment is ignored")


def checked(values: Mapping[str, object], source: str) -> AuthnSettings:
    """Return settings of `values` and defaults; raise `BadSettings` with one line for what cannot be."""
    typed = {name: read_value(_BY_NAME[name], value, f"{name} in {source}", _typed) for name, value in values.items()}
    settings = AuthnSettings(**typed)
    _check(settings)
    return settings


def shown(settings: AuthnSettings) -> list[tuple[str, str, str, str]]:
    """Return rows for people: name, environment variable, value (secrets masked), help."""
    return [
        (each.name, variable(each.name), _display(each, getattr(settings, each.name)), each.metadata["help"])
        for each in FIELDS
    ]


def _display(setting: "dataclasses.Field[Any]", value: Any) -> str:
    if setting.metadata["secret"] and value:
        return "***"
    if setting.type == Pairs:
        return json.dumps(dict(value))
    if isinstance(value, tuple):
        return _separator(setting.name).join(value)
    if isinstance(value, float):
        return duration_text(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _separator(name: str) -> str:
    return ";" if name == "proxy_names" else ","  # names have commas


def _from_file(path: str, warn: Callable[[str], None]) -> dict[str, Any]:
    if path.endswith(".json"):
        found = imported(path)
        values = found.values
        for note in found.notes:
            warn(note)
    else:
        values = _toml(path)
    return {name: read_value(_BY_NAME[name], value, f"{name} in {path}", _typed) for name, value in values.items()}


def _toml(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"settings file {path}: {error}") from error
    if unknown := sorted(set(table) - set(_BY_NAME)):
        raise BadSettings(
            f"settings file {path}: unknown key {unknown[0]!r}; `ams authn serve --help` lists what there is"
        )
    return table


def _typed(setting: "dataclasses.Field[Any]", value: object) -> Any:
    if setting.type == Pairs:
        return _pairs(value)
    if isinstance(setting.default, bool):
        return value if isinstance(value, bool) else truth(str(value))
    if isinstance(setting.default, float):
        return duration_seconds(str(value))
    if isinstance(setting.default, int):
        return _number(setting.name, value)
    if isinstance(setting.default, tuple):
        return _words(setting.name, value)
    if not isinstance(value, str):
        raise TypeError
    return value


def _pairs(value: object) -> Pairs:
    found = json.loads(value) if isinstance(value, str) else value
    if not isinstance(found, Mapping) or not all(isinstance(each, str) for each in found.values()):
        raise TypeError
    return tuple(found.items())


def _number(name: str, value: object) -> int:
    number = int(str(value))
    if number < 0 or (name in _PORTS and number > 65535):
        raise ValueError
    return number


def _words(name: str, value: object) -> tuple[str, ...]:
    entries = value.split(_separator(name)) if isinstance(value, str) else value
    if not isinstance(entries, list | tuple) or not all(isinstance(each, str) for each in entries):
        raise TypeError
    return tuple(each.strip() for each in entries if each.strip())


def _check(settings: AuthnSettings) -> None:
    if bool(settings.cert) != bool(settings.key):
        raise BadSettings("--cert and --key go together")
    if bool(settings.cert) == settings.tls_self_signed:
        raise BadSettings("either --cert and --key or --tls-self-signed is needed: logins are by TLS only")
    if not settings.client_ca and not (settings.development and settings.trust_unknown_cas):
        raise BadSettings("--client-ca is needed: the folder of the CAs that clients' certificates are checked by")
    if settings.secrets_key and not re.fullmatch(r"[0-9a-fA-F]{64}", settings.secrets_key):
        raise BadSettings("secrets_key must be 64 hex digits")
    if settings.registry != "sqlite" and not settings.registry.startswith(("postgresql://", "postgres://")):
        raise BadSettings("registry is sqlite or postgresql://USER@HOST:PORT/DATABASE")
    if _PASSWORD_IN_URL.search(settings.registry):  # what is not secret is shown
        raise BadSettings("registry must not hold a password; it goes into registry_password")
    if not settings.service_token.isascii():
        raise BadSettings("service_token must be ASCII")
    if settings.ams_endpoint and not _is_url(settings.ams_endpoint):
        raise BadSettings(f"ams_endpoint is a base URL: https://ams.example, not {settings.ams_endpoint}")
    if settings.max_connections < 1:
        raise BadSettings("max_connections must be positive")
    times = (
        settings.server_read_timeout, settings.server_header_read_timeout, settings.server_write_timeout,
        settings.server_idle_timeout,
    )  # fmt: skip
    if min(times) <= 0:
        raise BadSettings("server timeouts must be positive")
    _check_development(settings)
    _check_supported(settings)
    _check_proxies(settings)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _check_development(settings: AuthnSettings) -> None:
    """What lets anybody in must be asked for twice (A9)."""
    if settings.development:
        return
    for name, is_open in (
        ("trust_unknown_cas = true", settings.trust_unknown_cas),
        ("verify_certificate = false", not settings.verify_certificate),
        ("verify_ssl = false", not settings.verify_ssl),
    ):
        if is_open:
            raise BadSettings(f"{name} lets anybody log in as anybody; it needs --development, never with real users")


def _check_supported(settings: AuthnSettings) -> None:
    if OIDC in settings.supported_auth_types:
        raise BadSettings("supported_auth_types: oidc is not spoken here, only x509")
    for name, known in (("supported_auth_types", (X509,)), ("supported_auth_methods", (API_KEY, HEADERS))):
        given = getattr(settings, name)
        if not given or not set(given) <= set(known):
            raise BadSettings(f"{name} is of {', '.join(known)}")


def _check_proxies(settings: AuthnSettings) -> None:
    if settings.proxy_protocol and settings.proxy_header:
        raise BadSettings("proxy_protocol and proxy_header exclude each other: a proxy ends TLS, or passes it on")
    if settings.proxy_protocol != bool(settings.proxies):
        raise BadSettings("proxy_protocol and proxies go together")
    if bool(settings.proxy_header) != bool(settings.proxy_names):
        raise BadSettings("proxy_header and proxy_names go together")
    for name in ("proxies", "fetch_allow"):
        try:
            networks(",".join(getattr(settings, name)), name)
        except BadSettings:
            raise BadSettings(f"{name} is of networks: 192.0.2.0/24,2001:db8::/32") from None
    for each in settings.proxy_names:
        try:
            normalised(each)
        except ValueError:
            raise BadSettings(f"proxy_names: {each!r} is no distinguished name") from None
