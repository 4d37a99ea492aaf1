"""Settings of a program, read from flags, then the environment, then a file, then defaults.

A table is a class with one field per setting. The field's name is the TOML key, `AMS_` plus the name in capitals is the
environment variable, and the name with dashes is the flag. Unknown flags and TOML keys and bad values stop the start
with one line. Unknown variables only warn, as other programs share the environment. The table of `ams serve` is here;
the others are in `ams.authn.settings` and `ams.app.push_server.settings`.
"""

import dataclasses
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NewType, Self

from ams.core.errors import BadSettings
from ams.core.urls import is_loopback

Bytes = NewType("Bytes", int)  # A size; written `16MiB`, `500kB` or a plain number
Seconds = NewType("Seconds", float)  # A duration; written `7d`, `12h`, `90s`, `250ms` or a plain number of seconds
Words = tuple[str, ...]  # Texts; written with a separator, or as a TOML list
Pairs = tuple[tuple[str, str], ...]  # Names and values; written as a JSON object, or as a TOML table

CLIENT_VARIABLES = frozenset({
    "AMS_ENDPOINT", "AMS_TOKEN", "AMS_TOKEN_FILE", "AMS_BEARER_TOKEN", "AMS_BEARER_TOKEN_FILE", "AMS_PROJECT", "AMS_CA",
    "AMS_AUTHN_ENDPOINT", "AMS_AUTHN_KEY", "AMS_AUTHN_KEY_FILE", "AMS_AUTHN_CA", "AMS_PROFILE", "AMS_CONFIG",
    "AMS_DEBUG", "AMS_NEW_TOKEN_KEY", "AMS_MIGRATE_MONGODB", "AMS_MIGRATE_KAFKA", "AMS_MIGRATE_TOKEN",
})  # fmt: skip
AUTHN_VARIABLES = "AMS_AUTHN_"  # prefix of variables of the certificate service and its commands
MAX_PORT = 65535

MIN_SEGMENT, MAX_SEGMENT = 2**20, 2**28  # the largest keeps a start short; positions are 32 bits
MAX_RETENTION_SECONDS = 365 * 86_400  # also of topics and projects: the log keeps nothing longer
GOOGLE_MESSAGE_BYTES, MAX_GOOGLE_MESSAGE_BYTES = Bytes(10_000_000), Bytes(20_000_000)
MAX_PULL_WAIT_SECONDS = 8  # old clients time out at 10 s (clients.md A14)

MAX_LEEWAY_SECONDS = 300  # seconds
MAX_DRAIN_SECONDS = 60  # a supervisor kills a service that stops too slowly

_SIZE = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZE |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_DURATION = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SERVER = r"\s*([^\s:/,\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5}\s*"
_SERVERS = re.compile(f"{_SERVER}(,{_SERVER})*")
_NODE = re.compile(r"https?://([^\s:/@?#\[\]]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?/?")
_PASSWORD_IN_URL = re.compile(r"//[^?@]*:[^?@]*@|[?&](ssl)?password=")
"""Before the host, or among the parameters, where libpq also reads it."""
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
HEX_KEY = re.compile(r"[0-9a-fA-F]{64}")

Mistakes = Iterator[tuple[bool, str]]


def setting(
    default: Any, text: str, *, secret: bool = False, choices: Words = (), most: int | None = None, separator: str = ","
) -> Any:
    """Declare a setting; `text` is its help, `most` the maximum of a number, `separator` is for `Words`."""
    metadata = {"help": text, "secret": secret, "choices": choices, "most": most, "separator": separator}
    return field(default=default, repr=not secret, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class SettingsTable:
    """Base class of the settings of a program."""

    listed_by: ClassVar[str]  # the command that lists them
    prefix: ClassVar[str]  # of the environment variables
    of_others: ClassVar[str | Words] = ()  # longer prefixes that belong to other programs
    config_variable: ClassVar[str] = ""  # the environment variable that may name the file
    empty_is_unset: ClassVar[bool] = True  # whether an empty variable counts as not set

    log_level: str = setting("info", "Least level that is logged.", choices=("debug", "info", "warning", "error"))
    log_format: str = setting("console", "How log lines look.", choices=("console", "json"))
    log_facilities: str = setting(
        "console", "Where log lines go: to stderr (console), to the machine's syslog, or to both.",
        choices=("console", "syslog", "console,syslog"),
    )  # fmt: skip

    @classmethod
    def load(
        cls, flags: Mapping[str, object], environment: Mapping[str, str], config: str | None = None,
        warn: Callable[[str], None] = lambda line: None,
    ) -> Self:  # fmt: skip
        """Merge all sources; `config`, or its variable, names the file. Raises `BadSettings` or `Unusable`."""
        config = config or environment.get(cls.config_variable)
        values = cls._values(cls.from_file(config, warn), lambda name: f"{name} in {config}") if config else {}
        values |= cls._values(cls._from_environment(environment, warn), cls.variable)
        values |= cls._values({name: value for name, value in flags.items() if value is not None}, flag)
        return cls._validate(values)

    @classmethod
    def of(cls, values: Mapping[str, object], source: str) -> Self:
        """Return settings from `values` and defaults. Raises `BadSettings` with one line."""
        return cls._validate(cls._values(values, lambda name: f"{name} in {source}"))

    @classmethod
    def variable(cls, name: str) -> str:
        """Return the environment variable of a setting."""
        return cls.prefix + name.upper()

    @classmethod
    def fields(cls) -> "Sequence[dataclasses.Field[Any]]":
        """Return the settings in declaration order; those of all programs come last."""
        every, shared = dataclasses.fields(cls), len(dataclasses.fields(SettingsTable))
        return every[shared:] + every[:shared]

    @classmethod
    def from_file(cls, path: str, warn: Callable[[str], None]) -> Mapping[str, object]:
        """Return the settings in a TOML file."""
        try:
            with open(path, "rb") as file:
                table = tomllib.load(file)
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise BadSettings(f"settings file {path}: {error}") from error
        if unknown := sorted(set(table) - {each.name for each in cls.fields()}):
            raise BadSettings(
                f"settings file {path}: unknown key {unknown[0]!r}; `{cls.listed_by}` lists what there is"
            )
        return table

    def resolve_files(self) -> Self:
        """Return the settings with values read from the files that they name."""
        return self

    def mistakes(self) -> "Mistakes":
        """Yield all possible mistakes: whether each was made, and the line to report."""
        yield from ()

    def display_rows(self) -> list[tuple[str, str, str, str]]:
        """Return rows for people: name, environment variable, value (secrets masked), help."""
        return [
            (each.name, self.variable(each.name), _display(each, getattr(self, each.name)), each.metadata["help"])
            for each in self.fields()
        ]

    @classmethod
    def _from_environment(cls, environment: Mapping[str, str], warn: Callable[[str], None]) -> Mapping[str, object]:
        known = {cls.variable(each.name): each.name for each in cls.fields()}
        for name in sorted(environment):
            is_ours = name.startswith(cls.prefix) and not name.startswith(cls.of_others)
            if is_ours and name not in known and name not in CLIENT_VARIABLES:
                warn(f"unknown setting {name} in the environment is ignored")
        return {
            name: environment[variable]
            for variable, name in sorted(known.items())
            if variable in environment and (environment[variable] or not cls.empty_is_unset)
        }

    @classmethod
    def _values(cls, given: Mapping[str, object], source: Callable[[str], str]) -> dict[str, Any]:
        by_name = {each.name: each for each in cls.fields()}
        read: dict[str, Any] = {}
        for name, value in given.items():
            metadata = by_name[name].metadata
            try:
                read[name] = _parse_value(by_name[name], value)
            except (ValueError, TypeError, KeyError):
                shown = "***" if metadata["secret"] else repr(value)
                raise BadSettings(f"{source(name)}: {shown} is not a good value; {metadata['help']}") from None
            if metadata["choices"] and read[name] not in metadata["choices"]:
                raise BadSettings(f"{source(name)}: {value!r} is none of {', '.join(metadata['choices'])}")
        return read

    @classmethod
    def _validate(cls, values: Mapping[str, Any]) -> Self:
        settings = cls(**values).resolve_files()
        for is_so, line in settings.mistakes():
            if is_so:
                raise BadSettings(line)
        return settings


@dataclass(frozen=True, kw_only=True)
class Settings(SettingsTable):
    """Settings of the service."""

    listed_by = "ams settings"
    prefix = "AMS_"
    of_others = AUTHN_VARIABLES
    config_variable = "AMS_CONFIG"
    empty_is_unset = False

    data: str = setting("./ams-data", "Folder that holds everything: log, registry, cursors, keys.")
    log: str = setting(
        "embedded", "Where messages are kept: in the data folder, or on Kafka.", choices=("embedded", "kafka")
    )  # fmt: skip
    registry: str = setting(
        "sqlite",
        "Where the registry and the cursors are kept: sqlite, in the data folder, or postgresql://USER@HOST/DATABASE.",
    )
    registry_password: str = setting(
        "", "Password of the user at PostgreSQL; empty = none, or as libpq finds it.", secret=True
    )
    kafka_servers: str = setting("", "Brokers to begin with: host:port, or several with commas.")
    kafka_prefix: str = setting("ams", "What the names of our topics on Kafka begin with; another for each service.")
    kafka_replication: int = setting(3, "Brokers that keep each message.")
    kafka_min_isr: int = setting(2, "Brokers that must have a message before it counts as stored.")
    kafka_tls: bool = setting(False, "Speak TLS to the brokers.")
    kafka_ca_file: str = setting("", "CA certificates (PEM) the brokers are checked by; empty = the system's.")
    kafka_sasl: str = setting(
        "scram-sha-512", "How kafka_user logs in.", choices=("plain", "scram-sha-256", "scram-sha-512")
    )  # fmt: skip
    kafka_user: str = setting("", "User at the brokers; empty = none.")
    kafka_password: str = setting("", "Password of that user.", secret=True)
    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8080, "Port of the API; 0 takes a free one.")
    ops_host: str = setting("127.0.0.1", "Address of /healthz, /readyz and /metrics: what they tell is not secret.")
    ops_port: int = setting(8081, "Port of /healthz, /readyz and /metrics; 0 takes a free one.")
    pubsub_port: int | None = setting(
        None, "Port of Google's Pub/Sub (gRPC and REST); 0 takes a free one, empty = off."
    )
    pubsub_emulator: bool = setting(
        False, "Serve it as Google's emulator is: without TLS and tokens, to this machine only; projects are made."
    )
    node_url: str = setting(
        "", "How other nodes of a cluster reach this one: http://HOST:PORT or https://HOST:PORT; empty = not at all."
    )
    node_ca_file: str = setting("", "CA certificates (PEM) that other nodes are checked by, besides the system's.")
    drain_seconds: Seconds = setting(
        0.0, "How long a service serves after SIGTERM while /readyz fails, so that a proxy turns away first."
    )
    tls_self_signed: bool = setting(False, "Serve https with a local CA and certificate made in the data folder.")
    cert: str = setting("", "Certificate chain (PEM) to serve https with; read again on change and on SIGHUP.")
    key: str = setting("", "Private key (PEM) of the certificate.")
    auth_option: str = setting(
        "both", "Where tokens are read: headers (x-api-key, Authorization: Bearer), the query parameter key, or both.",
        choices=("both", "header", "key"),
    )  # fmt: skip
    service_token: str = setting("", "A token that acts as service_admin without a user; empty = none.", secret=True)
    per_resource_auth: bool = setting(True, "Whether access lists of topics and subscriptions are enforced.")
    show_tokens: bool = setting(
        True, "Whether administrators are shown users' tokens again and again; off: only when made or refreshed, and to"
        " the certificate service."
    )  # fmt: skip
    issuers_file: str = setting(
        "", "TOML file of OpenID Connect issuers whose tokens are accepted, besides those set by `ams issuers`."
    )
    issuers_allow: str = setting("", "Networks that issuers may be in, besides public addresses: 127.0.0.0/8,::1/128.")
    issuers_ca_file: str = setting("", "CA certificates (PEM) that issuers are checked by, besides the system's.")
    issuers_leeway: Seconds = setting(
        30.0, "How far the clocks of issuers, and of programs with keys, may be off; at most 5m."
    )
    console: bool = setting(True, "Serve the console, pages for a browser, at /console/ of the API's port.")
    console_logins: Pairs = setting(
        (), 'Issuers at which people log in to the console, and its client id at each: {"egi": "ams-console"}.'
    )
    roles_file: str = setting(
        "", "JSON or TOML file that says which roles may do what, for the actions it names; empty = the default table."
    )
    token_key: str = setting(
        "", "64 hex digits that encrypt stored tokens; empty = a key file made in the data folder.", secret=True
    )
    retention: Seconds = setting(7 * 86400.0, "How long messages are kept; at most 365d.")
    idempotency_window: Seconds = setting(
        0.0, "How long an Idempotency-Key of a publish is known; 0 = as long as the topic's messages are kept."
    )
    max_data_bytes: Bytes = setting(
        0, "Size of the data folder above which oldest messages go that are acknowledged; 0 = no limit."
    )
    min_free_bytes: Bytes = setting(
        256 * 2**20, "Free disk space below which publishing, and making anything, is refused."
    )
    reserve_bytes: Bytes = setting(
        64 * 2**20, "Space kept aside so that acknowledgements, deletions and the audit log go on when full."
    )
    segment_bytes: Bytes = setting(256 * 2**20, "Size at which a segment of the log is sealed.")
    sync: str = setting(
        "always", "always: an answer waits for the disk; interval: fsync is called every sync_interval, and a power"
        " loss may take what was answered since.", choices=("always", "interval"),
    )  # fmt: skip
    sync_interval: Seconds = setting(0.2, "How often fsync is called when sync is interval.")
    max_body_bytes: Bytes = setting(16 * 2**20, "Largest request body; beyond it 413.")
    max_message_bytes: Bytes = setting(1_500_000, "Largest stored message that the HTTP API takes; beyond it 413.")
    pubsub_max_message_bytes: Bytes = setting(
        0, "Largest message, and publish request, of Google's clients as they send it; beyond it"
        " INVALID_ARGUMENT. 0 = 10,000,000, of an emulator with its log in the data folder 20,000,000.",
    )  # fmt: skip
    max_buffered_bytes: Bytes = setting(256 * 2**20, "Memory for bodies being received; beyond it 503.")
    max_unread_bytes: Bytes = setting(
        256 * 2**20, "Memory for answers that clients have not read yet; pulls are smaller then, and beyond it 503."
    )
    max_header_bytes: Bytes = setting(64 * 2**10, "Largest request head; beyond it 400.")
    max_connections: int = setting(
        20_000,
        "Open connections to a port, of which an address has as many as it leaves free; beyond them 503, or closed with"
        " TLS. Also calls, and streams, of Google's clients at a time.",
    )
    request_seconds: Seconds = setting(30.0, "Time a client has to send a request.")
    keep_alive_seconds: Seconds = setting(75.0, "How long an idle connection is kept.")
    user_requests_per_second: int = setting(0, "Requests a second of one user; beyond it 429. 0 = no limit.")
    project_requests_per_second: int = setting(0, "Requests a second to one project; beyond it 429. 0 = no limit.")
    project_stored_bytes: Bytes = setting(
        0, "Bytes that one project's messages may take; beyond it 429. 0 = as much as they leave free of"
        " max_data_bytes, or of the disk; with the log on Kafka no limit."
    )  # fmt: skip
    project_publish_bytes_per_second: Bytes = setting(
        0, "Bytes of messages a second published to one project; beyond it 429. 0 = no limit."
    )
    project_topics: int = setting(10_000, "Topics of one project; beyond it 429. 0 = no limit.")
    project_subscriptions: int = setting(10_000, "Subscriptions of one project; beyond it 429. 0 = no limit.")
    project_schemas: int = setting(1_000, "Schemas of one project; beyond it 429. 0 = no limit.")
    project_schema_bytes: Bytes = setting(
        64 * 2**20,
        "Size of all revisions of all schemas of one project, and 256 bytes for each; beyond it 429. 0 = no limit.",
    )
    project_members: int = setting(10_000, "Members of one project; beyond it 429. 0 = no limit.")
    project_connections: int = setting(
        0, "HTTP connections of one project, on each node; beyond it 429. 0 = as many as it leaves free of"
        " max_connections.",
    )  # fmt: skip
    project_waiting_pulls: int = setting(
        0, "Pulls of one project that wait at a time, on each node; beyond it 429. 0 = as many as it leaves free of"
        " max_connections.",
    )  # fmt: skip
    project_streams: int = setting(
        0, "Streams of Google's clients of one project at a time, on each node; beyond it UNAVAILABLE. 0 = as many as"
        " it leaves free of max_connections.",
    )  # fmt: skip
    failed_logins_per_minute: int = setting(
        0, "Failed logins a minute of one address; beyond it they are answered 429. 0 = no limit."
    )
    trusted_proxies: str = setting(
        "", "Networks of proxies whose X-Forwarded-For says where a client is: 127.0.0.1,10.0.0.0/8."
    )
    audit_days: int = setting(0, "Days that events stay in the audit log's table; 0 = no limit.")
    max_pull_messages: int = setting(10_000, "Most messages a pull answers; larger wishes are cut silently.")
    max_pull_bytes: Bytes = setting(16 * 2**20, "Most bytes of messages a pull answers, but one at least.")
    max_read_messages: int = setting(1_000_000, "Most messages a range read answers; larger wishes are cut silently.")
    pull_wait: Seconds = setting(3.0, "How long a pull waits for a first message; 0 answers at once.")
    strict_data: bool = setting(False, "Refuse message data that is not base64; else it is stored as the text it is.")
    push_enabled: bool = setting(True, "Whether subscriptions may have a push configuration.")
    push_inside: bool = setting(
        True, "Whether this service delivers by itself; off where `ams push` does, and with a push_server_host."
    )
    push_worker_token: str = setting(
        "", "Token of the push worker's user; push_worker_0 gets it if no user has it. Empty = a new token.",
        secret=True,
    )  # fmt: skip
    push_server_host: str = setting("", "Host of a push server of its own; empty = none.")
    push_server_port: int = setting(0, "Port of that push server.")
    push_tls_enabled: bool = setting(True, "Speak TLS to the push server, and show it cert, if there is one.")
    verify_push_server: bool = setting(True, "Check the push server's certificate.")
    certificate_authorities_dir: str = setting("", "Folder of CA certificates (*.pem) the push server is checked by.")
    push_allow: str = setting(
        "", "Networks that push endpoints may be in, besides public addresses: 127.0.0.0/8,::1/128."
    )
    push_ca_file: str = setting("", "CA certificates (PEM) that push endpoints are checked by, besides the system's.")
    proxy_hostname: str = setting(
        "", "Host name shown by /v1/version when behind a proxy, and in the issuer of push identity tokens."
    )
    metrics_labels: bool = setting(
        False, "Whether /metrics on the operations port has labels with the names of projects and topics."
    )

    @property
    def google_message_bytes(self) -> Bytes:
        """Maximum bytes of a message, and of a publish request, from Google's clients."""
        usual = MAX_GOOGLE_MESSAGE_BYTES if self.pubsub_emulator and self.log == "embedded" else GOOGLE_MESSAGE_BYTES
        return self.pubsub_max_message_bytes or usual

    @property
    def largest_stored_message(self) -> Bytes:
        """Maximum bytes of a stored message, with its data in base64."""
        of_google = 0 if self.pubsub_port is None else self.google_message_bytes * 4 // 3
        return Bytes(max(self.max_message_bytes, of_google))

    def mistakes(self) -> Mistakes:
        """Yield all possible mistakes: whether each was made, and the line to report."""
        yield bool(self.cert) != bool(self.key), "--cert and --key go together"
        yield bool(self.cert) and self.tls_self_signed, "--tls-self-signed and --cert exclude each other"
        ports = (self.port, self.ops_port, self.push_server_port)
        yield not all(0 <= port <= MAX_PORT for port in ports), "a port is a number from 0 to 65535"
        least = min(self.max_pull_messages, self.max_read_messages, self.max_connections)
        yield least < 1, "max_pull_messages, max_read_messages and max_connections must be positive"
        yield self.retention <= 0, "retention must be positive"
        yield self.retention > MAX_RETENTION_SECONDS, "retention must not be over 365d: the log keeps nothing longer"
        yield not MIN_SEGMENT <= self.segment_bytes <= MAX_SEGMENT, "segment_bytes must be from 1MiB to 256MiB"
        yield self.pull_wait > MAX_PULL_WAIT_SECONDS, "pull_wait must not be over 8s: clients give up at 10s"
        yield self.max_buffered_bytes < self.max_body_bytes, "max_buffered_bytes must not be under max_body_bytes"
        unread, most = self.max_unread_bytes, MAX_GOOGLE_MESSAGE_BYTES
        yield unread < 4 * self.max_message_bytes, "max_unread_bytes must not be under four times max_message_bytes"
        yield self.pubsub_max_message_bytes > most, f"pubsub_max_message_bytes must not be over {most}"
        is_small = self.pubsub_port is not None and unread < 6 * self.google_message_bytes
        yield is_small, "max_unread_bytes must not be under six times pubsub_max_message_bytes"
        least = self.reserve_bytes + 4 * self.segment_bytes
        is_small, size = 0 < self.max_data_bytes < least, _size_text(least)
        yield is_small, f"max_data_bytes must be 0 or at least {size}: the reserve and four segments"
        yield bool(self.token_key) and not HEX_KEY.fullmatch(self.token_key), "token_key must be 64 hex digits"
        is_over, why = self.issuers_leeway > MAX_LEEWAY_SECONDS, "an expired token would be good for as long"
        yield is_over, f"issuers_leeway must not be over 5m: {why}"
        host, port = self.push_server_host, self.push_server_port
        yield bool(host) != bool(port), "push_server_host and push_server_port go together"
        yield not self.push_worker_token.isascii(), "push_worker_token must be ASCII"
        is_same = bool(self.push_worker_token) and self.push_worker_token == self.service_token
        yield is_same, "push_worker_token and service_token must differ: one belongs to a user, the other to none"
        yield (self.pubsub_port or 0) > MAX_PORT, "pubsub_port is a number from 0 to 65535"
        yield self.pubsub_emulator and self.pubsub_port is None, "pubsub_emulator needs pubsub_port"
        yield self.pubsub_emulator and not is_loopback(self.host), "pubsub_emulator is for a host of this machine only"
        servers, is_prefix = self.kafka_servers, re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", self.kafka_prefix)
        yield (self.log == "kafka") != bool(servers), "log = kafka and kafka_servers go together"
        yield not is_prefix, "kafka_prefix has 1 to 64 letters, digits, dashes or underscores"
        yield not 1 <= self.kafka_min_isr <= self.kafka_replication, "kafka_min_isr is from 1 to kafka_replication"
        yield bool(self.kafka_user) != bool(self.kafka_password), "kafka_user and kafka_password go together"
        yield from registry_mistakes(self.registry)
        yield bool(servers) and not _SERVERS.fullmatch(servers), "kafka_servers is host:port, or several with commas"
        yield bool(self.kafka_ca_file) and not self.kafka_tls, "kafka_ca_file is for kafka_tls, which is not set"
        is_bad = bool(self.node_url) and not _NODE.fullmatch(self.node_url)
        yield is_bad, "node_url is http://HOST:PORT or https://HOST:PORT, without a path"
        yield self.drain_seconds > MAX_DRAIN_SECONDS, f"drain_seconds must not be over {MAX_DRAIN_SECONDS}"


def flag(name: str) -> str:
    """Return the command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def is_plain_to_others(settings: Settings) -> bool:
    """Return whether the API is served without TLS to other machines."""
    return not (settings.cert or settings.tls_self_signed or is_loopback(settings.host))


def registry_mistakes(registry: str) -> Mistakes:
    """Yield possible mistakes in the registry's URL."""
    is_other = registry != "sqlite" and not registry.startswith(("postgresql://", "postgres://"))
    yield is_other, "registry is sqlite or postgresql://USER@HOST:PORT/DATABASE"
    # The rest of the URL is not secret and is displayed.
    yield bool(_PASSWORD_IN_URL.search(registry)), "registry must not hold a password; it goes into registry_password"


def _display(each: "dataclasses.Field[Any]", value: Any) -> str:
    if each.metadata["secret"] and value:
        return "***"
    if each.type is Bytes:
        return _size_text(value)
    if each.type is Seconds:
        return duration_text(value)
    if each.type == Pairs:
        return json.dumps(dict(value))
    if each.type == Words:
        return str(each.metadata["separator"].join(value))
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _size_text(size: int) -> str:
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        scale = _SIZE[unit.lower()]
        if size >= scale and size % scale == 0:
            return f"{size // scale}{unit}"
    return str(size)


def duration_text(duration: float) -> str:
    """Write a duration in seconds exactly, in the largest unit that divides it; `duration_seconds` reads it back."""
    for unit in ("d", "h", "m"):
        if duration >= _DURATION[unit] and duration % _DURATION[unit] == 0:
            return f"{duration / _DURATION[unit]:g}{unit}"
    return f"{duration:g}s"


def toml_text(value: object) -> str:
    """Write a text, number, boolean, list or table as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_text(name)} = {toml_text(each)}" for name, each in value.items()) + " }"
    # A JSON string is a TOML string, except for DEL, which JSON does not escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _parse_value(each: "dataclasses.Field[Any]", value: object) -> Any:
    if each.type is Bytes:
        return Bytes(size_number(value))
    if each.type is Seconds:
        return duration_seconds(str(value))
    if each.type is bool:
        return value if isinstance(value, bool) else _BOOLEANS[str(value).strip().lower()]
    if each.type is int:
        return _number(value, each.metadata["most"])
    if each.type == int | None:
        return None if value in (None, "") else _number(value, each.metadata["most"])
    if each.type == Pairs:
        pairs = json.loads(value) if isinstance(value, str) else value
        if not isinstance(pairs, Mapping) or not all(isinstance(text, str) for text in pairs.values()):
            raise TypeError
        return tuple(pairs.items())
    if each.type == Words:
        words = value.split(each.metadata["separator"]) if isinstance(value, str) else value
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise TypeError
        return tuple(word.strip() for word in words if word.strip())
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: object, most: int | None) -> int:
    number = int(str(value))
    if number < 0 or (most is not None and number > most):
        raise ValueError
    return number


def duration_seconds(text: str) -> Seconds:
    """Parse a duration as in settings. Raises `ValueError` or `KeyError`."""
    return Seconds(_measure(text, _DURATION))


def size_number(text: object) -> int:
    """Parse a number or a size as in settings. Raises `ValueError` or `KeyError`."""
    return round(_measure(text, _SIZE))


def retention_seconds(text: str) -> int:
    """Parse a retention in whole seconds; `default` is 0. Raises `ValueError` with a message for the user."""
    if text == "default":
        return 0
    try:
        read = duration_seconds(text)
    except (ValueError, KeyError):
        read = Seconds(0)
    if read > MAX_RETENTION_SECONDS:
        raise ValueError(f"{text!r} is too long: messages are kept for at most {duration_text(MAX_RETENTION_SECONDS)}")
    if read < 1 or read % 1:
        raise ValueError(f"{text!r} is no duration of whole seconds such as 7d, 12h or 90s, nor 'default'")
    return int(read)


def _measure(value: object, units: Mapping[str, float]) -> float:
    if (found := _NUMBER.fullmatch(str(value).strip())) is None:
        raise ValueError
    return float(found[1]) * units[found[2].lower()]


def environment() -> Mapping[str, str]:
    """Return the process's environment."""
    return os.environ
