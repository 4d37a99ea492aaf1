"""Settings of `ams authn serve`, as `ams.core.settings` reads them.

The file is TOML with these names, or the JSON of the reference (`ams.authn.settings_import`). The defaults are the
secure ones (contract 15, A9).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ams.authn import settings_import
from ams.authn.values import API_KEY, HEADERS, X509
from ams.core.distinguished_names import normalised
from ams.core.errors import BadSettings
from ams.core.settings import (
    AUTHN_VARIABLES,
    HEX_KEY,
    MAX_PORT,
    Bytes,
    Mistakes,
    Pairs,
    Seconds,
    SettingsTable,
    Words,
    registry_mistakes,
    setting,
)
from ams.core.urls import is_http_url, without_credentials
from ams.outgoing.guard import networks

OIDC = "oidc"


@dataclass(frozen=True, kw_only=True)
class AuthnSettings(SettingsTable):
    """Everything that can be set, with its default and what it is for."""

    listed_by = "ams authn serve --help"
    prefix = AUTHN_VARIABLES

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
        """Return the environment variable of a setting."""
        # AMS_AUTHN_KEY is the management key that clients give: where both are set, a secret is no name of a file.
        return "AMS_AUTHN_CERT_KEY" if name == "key" else super().variable(name)

    @classmethod
    def from_file(cls, path: str, warn: Callable[[str], None]) -> Mapping[str, object]:
        """Return the settings of a file: TOML, or the JSON of the reference if it is named so."""
        if not path.endswith(".json"):
            return super().from_file(path, warn)
        found = settings_import.from_file(path)
        for note in found.notes:
            warn(note)
        return found.values

    def mistakes(self) -> Mistakes:
        """Yield rules, each with whether it is broken and the line that says so."""
        yield bool(self.cert) != bool(self.key), "--cert and --key go together"
        yield (
            bool(self.cert) == self.tls_self_signed,
            "either --cert and --key or --tls-self-signed is needed: logins are by TLS only",
        )
        yield (
            not self.client_ca and not (self.development and self.trust_unknown_cas),
            "--client-ca is needed: the folder of the CAs that clients' certificates are checked by",
        )
        yield bool(self.secrets_key) and not HEX_KEY.fullmatch(self.secrets_key), "secrets_key must be 64 hex digits"
        yield from registry_mistakes(self.registry)
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
        yield OIDC in self.supported_auth_types, "supported_auth_types: oidc is not spoken here, only x509"
        for name, known in (("supported_auth_types", (X509,)), ("supported_auth_methods", (API_KEY, HEADERS))):
            given = getattr(self, name)
            yield not given or not set(given) <= set(known), f"{name} is of {', '.join(known)}"
        yield from self._proxy_mistakes()

    def _development_mistakes(self) -> Mistakes:
        """Settings that let anybody log in also need --development (A9)."""
        for name, is_open in (
            ("trust_unknown_cas = true", self.trust_unknown_cas),
            ("verify_certificate = false", not self.verify_certificate),
            ("verify_ssl = false", not self.verify_ssl),
        ):
            yield (
                is_open and not self.development,
                f"{name} lets anybody log in as anybody; it needs --development, never with real users",
            )

    def _proxy_mistakes(self) -> Mistakes:
        yield (
            self.proxy_protocol and bool(self.proxy_header),
            "proxy_protocol and proxy_header exclude each other: a proxy ends TLS, or passes it on",
        )
        yield self.proxy_protocol != bool(self.proxies), "proxy_protocol and proxies go together"
        yield bool(self.proxy_header) != bool(self.proxy_names), "proxy_header and proxy_names go together"
        yield not _are_networks(self.proxies), "proxies is of networks: 192.0.2.0/24,2001:db8::/32"
        yield not _are_networks(self.fetch_allow), "fetch_allow is of networks: 192.0.2.0/24,2001:db8::/32"
        for each in self.proxy_names:
            yield not _is_name(each), f"proxy_names: {each!r} is no distinguished name"


def _are_networks(texts: Words) -> bool:
    try:
        networks(",".join(texts), "")
    except BadSettings:
        return False
    return True


def _is_name(text: str) -> bool:
    try:
        normalised(text)
    except ValueError:
        return False
    return True
