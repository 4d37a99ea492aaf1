"""Settings of `ams authn serve`, read by `ams.core.settings`.

The file is TOML with these names, or the reference's JSON (contract 11, with its error texts). The defaults are secure
(contract 15, A9).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ams.authn.values import API_KEY, HEADERS, X509
from ams.core import settings
from ams.core.distinguished_names import normalise_name
from ams.core.errors import BadSettings, Unusable
from ams.core.settings import MAX_PORT, Bytes, Mistakes, Pairs, Seconds, SettingsTable, Words, setting
from ams.core.settings_import import ALL_ADDRESSES, Imported, known_keys, toml_table
from ams.core.urls import is_http_url, without_credentials
from ams.outgoing.address_guard import networks

_REQUIRED_KINDS: Mapping[str, type] = {
    "service_port": int, "mongo_host": str, "mongo_db": str, "certificate_authorities": str, "certificate": str,
    "certificate_key": str, "service_token": str, "supported_auth_types": list, "supported_auth_methods": list,
    "supported_service_types": list, "service_types_paths": dict, "service_types_retrieval_fields": dict,
}  # fmt: skip
"""Types of required keys, in the order in which missing ones are reported."""
_KINDS: Mapping[str, type] = {
    **_REQUIRED_KINDS, "verify_ssl": bool, "trust_unknown_cas": bool, "verify_certificate": bool,
    "client_cert_host_verification": bool, "syslog_enabled": bool, "server_read_timeout": int,
    "server_header_read_timeout": int, "server_write_timeout": int, "server_idle_timeout": int,
}  # fmt: skip
_INSECURE_VALUES = {"verify_ssl": False, "trust_unknown_cas": True, "verify_certificate": False}  # anybody may log in
_AUTHN_KEYS = {"service_port", "certificate_authorities", "service_types_paths"}  # only the reference's authn has them

NO_OIDC_NOTE = "supported_auth_types: oidc is left out: the reference takes it, and has no login for it"
NO_MONGO_NOTE = (
    "mongo_host and mongo_db have no counterpart: bindings are in the data folder, or on PostgreSQL (registry)"
)


def import_authn_settings(text: str) -> Imported | None:
    """Convert the reference's configuration to our TOML; None for another file. Raises `Unusable`."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or not _AUTHN_KEYS & given.keys():
        return None
    values, notes = convert_settings(given)
    return Imported(toml_table(values), notes)


def convert_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return our settings, and notes; neither these nor errors quote values. Missing switches are secure (A9)."""
    known = known_keys(given, _KINDS, _read_error)
    for key in _REQUIRED_KINDS:
        if not known.get(key):
            raise Unusable(f"config object contains empty fields. empty value for field: {key}")
    values = {
        "host": ALL_ADDRESSES,
        "port": known["service_port"],
        "cert": known["certificate"],
        "key": known["certificate_key"],
        "client_ca": known["certificate_authorities"],
        "supported_auth_types": [each for each in known["supported_auth_types"] if each != "oidc"],
    }
    # One sample of the reference has an extra brace.
    paths = known["service_types_paths"].items()
    values["service_types_paths"] = {name: path.replace("{{identifier}}}", "{{identifier}}") for name, path in paths}
    same_names = {each.name for each in AuthnSettings.fields()} - values.keys()
    values |= {key: known[key] for key in _KINDS if key in known and key in same_names}
    if known.get("syslog_enabled"):
        values["log_facilities"] = "console,syslog"
    return values, _notes(given, known)


def _notes(given: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[str, ...]:
    notes = [NO_MONGO_NOTE]
    if "oidc" in known["supported_auth_types"]:
        notes.append(NO_OIDC_NOTE)
    notes += [
        f"{key} lets anybody log in as anybody: the service starts so only with development = true"
        for key, value in _INSECURE_VALUES.items()
        if known.get(key) is value
    ]
    notes += [
        f"{key} is not given: it is {str(not value).lower()} here"
        for key, value in _INSECURE_VALUES.items()
        if key not in known
    ]
    return (*notes, *(f"{key} has no counterpart" for key in given if key not in _KINDS))


def _read_error(text: str) -> Unusable:
    return Unusable(f"Something went wrong while marshaling the json data. Error: {text}")


@dataclass(frozen=True, kw_only=True)
class AuthnSettings(SettingsTable):
    """All settings, with their defaults and purposes."""

    listed_by = "ams authn serve --help"
    prefix = settings.AUTHN_VARIABLES

    data: str = setting("./ams-authn", "Folder for the database and the keys; may be that of ams serve.")
    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8443, "Port of the API; 0 takes a free one.", most=MAX_PORT)
    ops_host: str = setting("127.0.0.1", "Address of /healthz, /readyz and /metrics.")
    ops_port: int = setting(8444, "Port of /healthz, /readyz and /metrics; 0 takes a free one.", most=MAX_PORT)
    cert: str = setting("", "Certificate chain (PEM) to serve with; read again on change and on SIGHUP.")
    key: str = setting("", "Private key (PEM) of the certificate.")
    tls_self_signed: bool = setting(False, "Serve with a local CA and certificate made in the data folder.")
    client_ca: str = setting(
        "", "Folder of the CAs that clients' certificates are checked by, and of their revocation lists."
    )
    registry: str = setting(
        "sqlite", "Where bindings are kept: sqlite, in the data folder, or postgresql://USER@HOST/DATABASE."
    )
    registry_password: str = setting(
        "", "Password of the user at PostgreSQL; empty = none, or as libpq finds it.", secret=True
    )
    secrets_key: str = setting(
        "", "64 hex digits that encrypt stored secrets; empty = a key file made in the data folder.", secret=True
    )
    service_token: str = setting(
        "", "The management key; empty = one made at the first start, in authn.key of the data folder.", secret=True
    )
    ams_endpoint: str = setting("", "Base URL of an AMS whose service_admin tokens manage this service too.")
    ams_ca: str = setting("", "CA certificates (PEM) that AMS is checked by; empty = the system's.")
    supported_auth_types: Words = setting((X509,), "What bindings may identify: x509.")
    supported_auth_methods: Words = setting(
        (API_KEY, HEADERS), "How services may be asked for a user: api-key, headers."
    )
    supported_service_types: Words = setting(("ams", "web-api", "custom"), "Kinds of services there may be.")
    service_types_paths: Pairs = setting(
        (("ams", "/v1/users:byUUID/{{identifier}}"), ("web-api", "/api/v2/users:byID/{{identifier}}?export=flat")),
        "Where each kind of service is asked for a user.",
    )
    service_types_retrieval_fields: Pairs = setting(
        (("ams", "token"), ("web-api", "api_key")), "Which field of the answer is the token."
    )
    verify_ssl: bool = setting(True, "Check the certificates of services; off with development only.")
    service_ca: str = setting("", "CA certificates (PEM) that services are checked by, besides the system's.")
    trust_unknown_cas: bool = setting(False, "Take clients' certificates of any CA; with development only.")
    verify_certificate: bool = setting(
        True, "Check dates, usage and revocation of clients' certificates; off with development only."
    )
    client_cert_host_verification: bool = setting(
        False, "Whether a client's address must be one of its certificate's names, at every service type."
    )
    development: bool = setting(False, "Allow what lets anybody in: for trying things out, never with real users.")
    revocation: str = setting(
        "refuse", "What becomes of a certificate whose revocation list cannot be had, or is too old.",
        choices=("refuse", "warn"),
    )  # fmt: skip
    ocsp: bool = setting(True, "Ask the OCSP responder of a certificate that names no revocation list.")
    fetch_allow: Words = setting((), "Networks that revocation lists may be fetched from, besides public addresses.")
    token_seconds: Seconds = setting(Seconds(1.0), "How long a service's answer is used again; 0 = never.")
    min_free_bytes: Bytes = setting(
        Bytes(256 * 2**20), "Free disk space below which whatever makes the data folder larger is refused."
    )
    reserve_bytes: Bytes = setting(
        Bytes(16 * 2**20), "Space kept aside so that logins, deletions and the audit log go on when full."
    )
    failed_logins_per_minute: int = setting(30, "Failed logins of one address; beyond them 429. 0 = no limit.")
    audit_days: int = setting(0, "Days that events stay in the audit log's table; 0 = for ever.")
    proxy_protocol: bool = setting(False, "Connections begin with the PROXY protocol; needs proxies.")
    proxies: Words = setting((), "Networks that connections come from with proxy_protocol.")
    proxy_header: str = setting("", "Header in which a proxy tells a client's certificate; needs proxy_names.")
    proxy_names: Words = setting(
        (), "Subjects of the certificates of those proxies, with semicolons between them.", separator=";"
    )
    server_read_timeout: Seconds = setting(Seconds(5.0), "Time a client has to send a request.")
    server_header_read_timeout: Seconds = setting(
        Seconds(5.0), "Time a client has for a handshake, and again for the head of a request."
    )
    server_write_timeout: Seconds = setting(
        Seconds(15.0), "Time until an answer is sent; whatever it takes to make it ends a tenth before."
    )
    server_idle_timeout: Seconds = setting(Seconds(60.0), "How long an idle connection is kept.")
    max_connections: int = setting(
        10_000, "Open connections, of which an address has as many as it leaves free; beyond them closed."
    )

    @classmethod
    def variable(cls, name: str) -> str:
        # AMS_AUTHN_KEY is the clients' management key: if both are set, a secret is not a file name.
        return "AMS_AUTHN_CERT_KEY" if name == "key" else super().variable(name)

    @classmethod
    def from_file(cls, path: str, warn: Callable[[str], None]) -> Mapping[str, object]:
        if not path.endswith(".json"):
            return super().from_file(path, warn)
        try:
            with open(path, "rb") as file:
                given = json.loads(file.read())
        except OSError as error:
            raise Unusable(f"open {path}: {(error.strerror or '').lower()}") from error
        except (ValueError, RecursionError) as error:
            raise _read_error(str(error)) from None
        if not isinstance(given, dict):
            raise _read_error("this is no JSON object")
        values, notes = convert_settings(given)
        for note in notes:
            warn(note)
        return values

    def mistakes(self) -> Mistakes:
        yield bool(self.cert) != bool(self.key), "--cert and --key go together"
        said = "either --cert and --key or --tls-self-signed is needed: logins are by TLS only"
        yield bool(self.cert) == self.tls_self_signed, said
        said = "--client-ca is needed: the folder of the CAs that clients' certificates are checked by"
        yield not self.client_ca and not (self.development and self.trust_unknown_cas), said
        said = "secrets_key must be 64 hex digits"
        yield bool(self.secrets_key) and not settings.HEX_KEY.fullmatch(self.secrets_key), said
        yield from settings.registry_mistakes(self.registry)
        yield not self.service_token.isascii(), "service_token must be ASCII"
        yield (
            bool(self.ams_endpoint) and not is_http_url(self.ams_endpoint),
            "ams_endpoint is a base URL without a user and password: https://ams.example, not "
            f"{without_credentials(self.ams_endpoint)}",
        )
        yield self.max_connections < 1, "max_connections must be positive"
        reading = min(self.server_read_timeout, self.server_header_read_timeout)
        yield min(reading, self.server_write_timeout, self.server_idle_timeout) <= 0, "server timeouts must be positive"
        yield from self._development_mistakes()
        yield "oidc" in self.supported_auth_types, "supported_auth_types: oidc is not spoken here, only x509"
        for name, known in (("supported_auth_types", (X509,)), ("supported_auth_methods", (API_KEY, HEADERS))):
            given = getattr(self, name)
            yield not given or not set(given) <= set(known), f"{name} is of {', '.join(known)}"
        yield from self._proxy_mistakes()

    def _development_mistakes(self) -> Mistakes:
        """Require --development for settings that let anybody log in (A9)."""
        for name in ("trust_unknown_cas", "verify_certificate", "verify_ssl"):
            said = f"{name} = {str(_INSECURE_VALUES[name]).lower()} lets anybody log in as anybody"
            is_open = getattr(self, name) is _INSECURE_VALUES[name] and not self.development
            yield is_open, f"{said}; it needs --development, never with real users"

    def _proxy_mistakes(self) -> Mistakes:
        said = "proxy_protocol and proxy_header exclude each other: a proxy ends TLS, or passes it on"
        yield self.proxy_protocol and bool(self.proxy_header), said
        yield self.proxy_protocol != bool(self.proxies), "proxy_protocol and proxies go together"
        yield bool(self.proxy_header) != bool(self.proxy_names), "proxy_header and proxy_names go together"
        for name in ("proxies", "fetch_allow"):
            is_right = _can_be_read(networks, ",".join(getattr(self, name)), "")
            yield not is_right, f"{name} is of networks: 192.0.2.0/24,2001:db8::/32"
        for each in self.proxy_names:
            yield not _can_be_read(normalise_name, each), f"proxy_names: {each!r} is no distinguished name"


def _can_be_read(read: Callable[..., object], *texts: str) -> bool:
    try:
        read(*texts)
    except (BadSettings, ValueError):
        return False
    return True
