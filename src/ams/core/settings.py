"""Settings: one typed table, read from flags, then the environment, then a TOML file, then defaults.

A field's name is its TOML key; `AMS_` and the name in capitals is its environment variable; with dashes it is the
flag of `ams serve`. Unknown flags and TOML keys and bad values stop the start with one line; unknown `AMS_*`
variables only warn, as an environment is shared with other programs.
"""

import dataclasses
import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NewType

from ams.core.errors import BadSettings

Bytes = NewType("Bytes", int)
"""A size; written `16MiB`, `500kB` or a plain number."""
Seconds = NewType("Seconds", float)
"""A duration; written `7d`, `12h`, `90s`, `250ms` or a plain number of seconds."""

CLIENT_VARIABLES = frozenset(
    {
        "AMS_ENDPOINT",
        "AMS_TOKEN",
        "AMS_TOKEN_FILE",
        "AMS_BEARER_TOKEN",
        "AMS_BEARER_TOKEN_FILE",
        "AMS_PROJECT",
        "AMS_CA",
        "AMS_AUTHN_ENDPOINT",
        "AMS_AUTHN_KEY",
        "AMS_AUTHN_KEY_FILE",
        "AMS_AUTHN_CA",
        "AMS_PROFILE",
        "AMS_CONFIG",
        "AMS_DEBUG",
        "AMS_NEW_TOKEN_KEY",
    }
)
"""Variables of the client commands, which are no settings of the service."""
AUTHN_VARIABLES = "AMS_AUTHN_"
"""What variables of the certificate service begin with, and of the commands that ask it."""

MIN_SEGMENT, MAX_SEGMENT = 2**20, 2**28
"""The largest keeps the scan at a start short; positions in a segment are 32 bits."""
MAX_RETENTION_SECONDS = 365 * 86_400
"""Also for a topic's and a project's own time: the log has no class of segments that are kept longer."""
MAX_PULL_WAIT = 8
"""Seconds; clients of old give up at ten (clients.md A14)."""

MAX_LEEWAY = 300
"""Seconds."""
MAX_DRAIN = 60
"""Seconds; whoever stops a service ends it by force if it takes long."""

_SIZE = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZE |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_DURATION = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SERVER = r"\s*([^\s:/,\[\]]+|\[[0-9a-fA-F:.]+\]):\d{1,5}\s*"
_SERVERS = re.compile(f"{_SERVER}(,{_SERVER})*")
_PASSWORD_IN_URL = re.compile(r"//[^?@]*:[^?@]*@|[?&](ssl)?password=")
"""Before the host, or where libpq takes it besides: among the parameters."""
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")


def _setting(default: Any, text: str, *, secret: bool = False, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, repr=not secret, metadata={"help": text, "secret": secret, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be set, with its default and what it is for."""

    data: str = _setting("./ams-data", "Folder that holds everything: log, registry, cursors, keys.")
    log: str = _setting(
        "embedded", "Where messages are kept: in the data folder, or on Kafka.", choices=("embedded", "kafka")
    )  # fmt: skip
    registry: str = _setting(
        "sqlite",
        "Where the registry and the cursors are kept: sqlite, in the data folder, or postgresql://USER@HOST/DATABASE.",
    )
    registry_password: str = _setting(
        "", "Password of the user at PostgreSQL; empty = none, or as libpq finds it.", secret=True
    )
    kafka_servers: str = _setting("", "Brokers to begin with: host:port, or several with commas.")
    kafka_prefix: str = _setting("ams", "What the names of our topics on Kafka begin with; another for each service.")
    kafka_replication: int = _setting(3, "Brokers that keep each message.")
    kafka_min_isr: int = _setting(2, "Brokers that must have a message before it counts as stored.")
    kafka_tls: bool = _setting(False, "Speak TLS to the brokers.")
    kafka_ca_file: str = _setting("", "CA certificates (PEM) the brokers are checked by; empty = the system's.")
    kafka_sasl: str = _setting(
        "scram-sha-512", "How kafka_user logs in.", choices=("plain", "scram-sha-256", "scram-sha-512")
    )  # fmt: skip
    kafka_user: str = _setting("", "User at the brokers; empty = none.")
    kafka_password: str = _setting("", "Password of that user.", secret=True)
    host: str = _setting("127.0.0.1", "Address to listen on.")
    port: int = _setting(8080, "Port of the API; 0 takes a free one.")
    ops_host: str = _setting("127.0.0.1", "Address of /healthz, /readyz and /metrics: what they tell is not secret.")
    ops_port: int = _setting(8081, "Port of /healthz, /readyz and /metrics; 0 takes a free one.")
    drain_seconds: Seconds = _setting(
        Seconds(0.0), "How long a service told to stop serves on while /readyz fails, so that a proxy turns away first."
    )
    tls_self_signed: bool = _setting(False, "Serve https with a local CA and certificate made in the data folder.")
    cert: str = _setting("", "Certificate chain (PEM) to serve https with; read again on change and on SIGHUP.")
    key: str = _setting("", "Private key (PEM) of the certificate.")
    auth_option: str = _setting(
        "both", "Where tokens are read: headers (x-api-key, Authorization: Bearer), the query parameter key, or both.",
        choices=("both", "header", "key"),
    )  # fmt: skip
    service_token: str = _setting("", "A token that acts as service_admin without a user; empty = none.", secret=True)
    per_resource_auth: bool = _setting(True, "Whether access lists of topics and subscriptions are enforced.")
    show_tokens: bool = _setting(
        True, "Whether administrators are shown users' tokens again and again; off: only when made or refreshed, and to"
        " the certificate service."
    )  # fmt: skip
    issuers_file: str = _setting(
        "", "TOML file of OpenID Connect issuers whose tokens are accepted, besides those set by `ams issuers`."
    )
    issuers_allow: str = _setting("", "Networks that issuers may be in, besides public addresses: 127.0.0.0/8,::1/128.")
    issuers_ca_file: str = _setting("", "CA certificates (PEM) that issuers are checked by, besides the system's.")
    issuers_leeway: Seconds = _setting(Seconds(30.0), "How far the clocks of issuers may be off; at most 5m.")
    roles_file: str = _setting(
        "", "JSON or TOML file that says which roles may do what, for the actions it names; empty = the default table."
    )
    token_key: str = _setting(
        "", "64 hex digits that encrypt stored tokens; empty = a key file made in the data folder.", secret=True
    )
    retention: Seconds = _setting(Seconds(7 * 86400.0), "How long messages are kept; at most 365d.")
    idempotency_window: Seconds = _setting(
        Seconds(0.0), "How long an Idempotency-Key of a publish is known; 0 = as long as the topic's messages are kept."
    )
    max_data_bytes: Bytes = _setting(Bytes(0), "Size of the data folder above which oldest messages go; 0 = no limit.")
    min_free_bytes: Bytes = _setting(Bytes(256 * 2**20), "Free disk space below which publishing is refused.")
    reserve_bytes: Bytes = _setting(Bytes(64 * 2**20), "Space kept aside so that acknowledgements commit when full.")
    segment_bytes: Bytes = _setting(Bytes(256 * 2**20), "Size at which a segment of the log is sealed.")
    sync: str = _setting(
        "always", "always: an answer waits for the disk; interval: the disk is told every sync_interval, and a power"
        " loss may take what was answered since.", choices=("always", "interval"),
    )  # fmt: skip
    sync_interval: Seconds = _setting(Seconds(0.2), "How often the disk is told when sync is interval.")
    max_body_bytes: Bytes = _setting(Bytes(16 * 2**20), "Largest request body; beyond it 413.")
    max_message_bytes: Bytes = _setting(Bytes(1_500_000), "Largest stored message; beyond it 413.")
    max_buffered_bytes: Bytes = _setting(Bytes(256 * 2**20), "Memory for bodies being received; beyond it 503.")
    max_unread_bytes: Bytes = _setting(
        Bytes(256 * 2**20),
        "Memory for answers that clients have not read yet; pulls are smaller then, and beyond it 503.",
    )
    max_header_bytes: Bytes = _setting(Bytes(64 * 2**10), "Largest request head; beyond it 400.")
    max_connections: int = _setting(20_000, "Open connections; beyond them 503.")
    request_seconds: Seconds = _setting(Seconds(30.0), "Time a client has to send a request.")
    keep_alive_seconds: Seconds = _setting(Seconds(75.0), "How long an idle connection is kept.")
    user_requests_per_second: int = _setting(0, "Requests a second of one user; beyond it 429. 0 = no limit.")
    project_requests_per_second: int = _setting(0, "Requests a second to one project; beyond it 429. 0 = no limit.")
    failed_logins_per_minute: int = _setting(
        0, "Failed logins a minute of one address; beyond it they are answered 429. 0 = no limit."
    )
    trusted_proxies: str = _setting(
        "", "Networks of proxies whose X-Forwarded-For says where a client is: 127.0.0.1,10.0.0.0/8."
    )
    audit_days: int = _setting(0, "Days that events stay in the audit log's table; 0 = for ever.")
    max_pull_messages: int = _setting(10_000, "Most messages a pull answers; larger wishes are cut silently.")
    max_pull_bytes: Bytes = _setting(Bytes(16 * 2**20), "Most bytes of messages a pull answers, but one at least.")
    max_read_messages: int = _setting(1_000_000, "Most messages a range read answers; larger wishes are cut silently.")
    pull_wait: Seconds = _setting(Seconds(3.0), "How long a pull waits for a first message; 0 answers at once.")
    lenient_data: bool = _setting(False, "Store message data that is not base64 as it is.")
    push_enabled: bool = _setting(True, "Whether subscriptions may have a push configuration.")
    push_inside: bool = _setting(
        True, "Whether this service delivers by itself; off where `ams push` does, and with a push_server_host."
    )
    push_worker_token: str = _setting(
        "", "Token of the user who delivers; push_worker_0 is given it if it is nobody's. Empty = one of its own.",
        secret=True,
    )  # fmt: skip
    push_server_host: str = _setting("", "Host of a push server of its own; empty = none.")
    push_server_port: int = _setting(0, "Port of that push server.")
    push_tls_enabled: bool = _setting(True, "Speak TLS to the push server, and show it cert, if there is one.")
    verify_push_server: bool = _setting(True, "Check the push server's certificate.")
    certificate_authorities_dir: str = _setting("", "Folder of CA certificates (*.pem) the push server is checked by.")
    push_allow: str = _setting(
        "", "Networks that push endpoints may be in, besides public addresses: 127.0.0.0/8,::1/128."
    )
    push_ca_file: str = _setting("", "CA certificates (PEM) that push endpoints are checked by, besides the system's.")
    proxy_hostname: str = _setting("", "Host name shown by /v1/version when behind a proxy.")
    metrics_labels: bool = _setting(
        False, "Whether /metrics on the operations port tells projects and topics apart, by name."
    )
    log_level: str = _setting("info", "Least level that is logged.", choices=("debug", "info", "warning", "error"))
    log_format: str = _setting("console", "How log lines look.", choices=("console", "json"))
    log_facilities: str = _setting(
        "console", "Where log lines go: to stderr (console), to the machine's syslog, or to both.",
        choices=("console", "syslog", "console,syslog"),
    )  # fmt: skip


FIELDS = dataclasses.fields(Settings)
DURATIONS = frozenset(each.name for each in FIELDS if each.type is Seconds)
SIZES = frozenset(each.name for each in FIELDS if each.type is Bytes)


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"AMS_{name.upper()}"


def flag(name: str) -> str:
    """Return the command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def load(
    flags: Mapping[str, object], environment: Mapping[str, str], warn: Callable[[str], None], config: str | None = None
) -> Settings:
    """Put the settings together; `config` (or AMS_CONFIG) names a TOML file. Raises `BadSettings` with one line."""
    path = config or environment.get("AMS_CONFIG")
    values = _from_file(path) if path else {}
    values |= _from_environment(environment, warn)
    values |= {name: _value(name, value, flag(name)) for name, value in flags.items() if value is not None}
    settings = Settings(**values)
    _check(settings)
    return settings


def checked(values: Mapping[str, object], source: str) -> Settings:
    """Return settings of `values` and defaults; raise `BadSettings` with one line for what cannot be."""
    settings = Settings(**{name: _value(name, value, f"{name} in {source}") for name, value in values.items()})
    _check(settings)
    return settings


def is_plain_to_others(settings: Settings) -> bool:
    """Whether the API is served without TLS at an address that other machines may reach."""
    if settings.cert or settings.tls_self_signed or settings.host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(settings.host).is_loopback
    except ValueError:  # a name
        return True


def shown(settings: Settings) -> list[tuple[str, str, str, str]]:
    """Return rows for people: name, environment variable, value (secrets masked), help."""
    return [(each.name, variable(each.name), _display(settings, each), each.metadata["help"]) for each in FIELDS]


def _display(settings: Settings, each: "dataclasses.Field[Any]") -> str:
    value = getattr(settings, each.name)
    if each.metadata["secret"] and value:
        return "***"
    if each.name in SIZES:
        return _size_text(value)
    if each.name in DURATIONS:
        return duration_text(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _size_text(size: int) -> str:
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        scale = _SIZE[unit.lower()]
        if size >= scale and size % scale == 0:
            return f"{size // scale}{unit}"
    return str(size)


def duration_text(duration: float) -> str:
    """Write a duration of so many seconds exactly, in the largest unit that divides it, so that it can be set again."""
    for unit in ("d", "h", "m"):
        if duration >= _DURATION[unit] and duration % _DURATION[unit] == 0:
            return f"{duration / _DURATION[unit]:g}{unit}"
    return f"{duration:g}s"


def _from_file(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"settings file {path}: {error}") from error
    known = {each.name for each in FIELDS}
    if unknown := sorted(set(table) - known):
        raise BadSettings(f"settings file {path}: unknown key {unknown[0]!r}; `ams settings` lists what there is")
    return {name: _value(name, value, f"{name} in {path}") for name, value in table.items()}


def toml_text(value: object) -> str:
    """Write a text, number or truth as it stands in a TOML file."""
    # A JSON string is a TOML string, but for the one control character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _from_environment(environment: Mapping[str, str], warn: Callable[[str], None]) -> dict[str, Any]:
    known = {variable(each.name): each.name for each in FIELDS}
    values = {}
    for name in sorted(environment):
        if name in known:
            values[known[name]] = _value(known[name], environment[name], name)
        elif name.startswith("AMS_") and name not in CLIENT_VARIABLES and not name.startswith(AUTHN_VARIABLES):
            warn(f"unknown setting {name} in the environment is ignored")
    return values


def _value(name: str, value: object, source: str) -> Any:
    return read_value(next(each for each in FIELDS if each.name == name), value, source, _read)


Typed = Callable[["dataclasses.Field[Any]", object], Any]
"""Reads a value as a field wants it; raises `ValueError`, `TypeError` or `KeyError`."""


def read_value(setting: "dataclasses.Field[Any]", value: object, source: str, typed: Typed) -> Any:
    """Read the value of a field of a table of settings; raise `BadSettings`, which names the `source`."""
    try:
        read = typed(setting, value)
    except (ValueError, TypeError, KeyError):
        shown = "***" if setting.metadata["secret"] else repr(value)
        raise BadSettings(f"{source}: {shown} is not a good value; {setting.metadata['help']}") from None
    choices = setting.metadata["choices"]
    if choices and read not in choices:
        raise BadSettings(f"{source}: {value!r} is none of {', '.join(choices)}")
    return read


def _read(setting: "dataclasses.Field[Any]", value: object) -> Any:
    if setting.name in SIZES:
        return Bytes(round(_measure(value, _SIZE)))
    if setting.name in DURATIONS:
        return Seconds(float(_measure(value, _DURATION)))
    if setting.type is bool:
        return value if isinstance(value, bool) else truth(str(value))
    if setting.type is int:
        number = int(str(value))
        if number < 0:
            raise ValueError
        return number
    if not isinstance(value, str):
        raise TypeError
    return value


def duration_seconds(text: str) -> Seconds:
    """Read a duration as settings are written; raises `ValueError` or `KeyError`."""
    return Seconds(_measure(text, _DURATION))


def _measure(value: object, units: Mapping[str, float]) -> float:
    found = _NUMBER.fullmatch(str(value).strip())
    if found is None:
        raise ValueError
    return float(found[1]) * units[found[2].lower()]


def truth(text: str) -> bool:
    """Read whether something is switched on, as settings are written; raises `KeyError`."""
    return {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}[
        text.strip().lower()
    ]


def _check(settings: Settings) -> None:
    if bool(settings.cert) != bool(settings.key):
        raise BadSettings("--cert and --key go together")
    if settings.cert and settings.tls_self_signed:
        raise BadSettings("--tls-self-signed and --cert exclude each other")
    if not all(0 <= port <= 65535 for port in (settings.port, settings.ops_port, settings.push_server_port)):
        raise BadSettings("a port is a number from 0 to 65535")
    if min(settings.max_pull_messages, settings.max_read_messages, settings.max_connections) < 1:
        raise BadSettings("max_pull_messages, max_read_messages and max_connections must be positive")
    if settings.retention <= 0:
        raise BadSettings("retention must be positive")
    if settings.retention > MAX_RETENTION_SECONDS:
        raise BadSettings("retention must not be over 365d: the log keeps nothing longer")
    if not MIN_SEGMENT <= settings.segment_bytes <= MAX_SEGMENT:
        raise BadSettings("segment_bytes must be from 1MiB to 256MiB")
    if settings.pull_wait > MAX_PULL_WAIT:
        raise BadSettings("pull_wait must not be over 8s: clients give up at 10s")
    if settings.max_buffered_bytes < settings.max_body_bytes:
        raise BadSettings("max_buffered_bytes must not be under max_body_bytes")
    if settings.max_unread_bytes < 4 * settings.max_message_bytes:
        raise BadSettings("max_unread_bytes must not be under four times max_message_bytes")
    least = settings.reserve_bytes + 4 * settings.segment_bytes
    if settings.max_data_bytes and settings.max_data_bytes < least:
        raise BadSettings(f"max_data_bytes must be 0 or at least {_size_text(least)}: the reserve and four segments")
    if settings.token_key and not re.fullmatch(r"[0-9a-fA-F]{64}", settings.token_key):
        raise BadSettings("token_key must be 64 hex digits")
    if settings.issuers_leeway > MAX_LEEWAY:
        raise BadSettings("issuers_leeway must not be over 5m: an expired token would be good for as long")
    _check_push(settings)
    _check_cluster(settings)


def _check_cluster(settings: Settings) -> None:
    if (settings.log == "kafka") != bool(settings.kafka_servers):
        raise BadSettings("log = kafka and kafka_servers go together")
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", settings.kafka_prefix):
        raise BadSettings("kafka_prefix has 1 to 64 letters, digits, dashes or underscores")
    if not 1 <= settings.kafka_min_isr <= settings.kafka_replication:
        raise BadSettings("kafka_min_isr is from 1 to kafka_replication")
    if bool(settings.kafka_user) != bool(settings.kafka_password):
        raise BadSettings("kafka_user and kafka_password go together")
    if settings.registry != "sqlite" and not settings.registry.startswith(("postgresql://", "postgres://")):
        raise BadSettings("registry is sqlite or postgresql://USER@HOST:PORT/DATABASE")
    if settings.kafka_servers and not _SERVERS.fullmatch(settings.kafka_servers):
        raise BadSettings("kafka_servers is host:port, or several with commas")
    if settings.kafka_ca_file and not settings.kafka_tls:
        raise BadSettings("kafka_ca_file is for kafka_tls, which is not set")
    if _PASSWORD_IN_URL.search(settings.registry):  # what is not secret is shown
        raise BadSettings("registry must not hold a password; it goes into registry_password")
    if settings.drain_seconds > MAX_DRAIN:
        raise BadSettings(f"drain_seconds must not be over {MAX_DRAIN}")


def _check_push(settings: Settings) -> None:
    if bool(settings.push_server_host) != bool(settings.push_server_port):
        raise BadSettings("push_server_host and push_server_port go together")
    if not settings.push_worker_token.isascii():
        raise BadSettings("push_worker_token must be ASCII")
    if settings.push_worker_token and settings.push_worker_token == settings.service_token:
        raise BadSettings("push_worker_token and service_token must differ: one is a user's, the other is nobody's")


def environment() -> Mapping[str, str]:
    """Return the process's environment, which settings and profiles are read from."""
    return os.environ
