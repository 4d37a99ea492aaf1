"""Options of the Kafka engine: where the brokers are, the settings of topics, and limits of memory and time."""

import ssl
from dataclasses import dataclass, field
from typing import Any

from aiokafka.conn import collect_hosts

from ams.core.clock import Milliseconds
from ams.core.errors import BadSettings


@dataclass(frozen=True, kw_only=True)
class KafkaOptions:
    """Settings of the Kafka engine. The defaults fit three brokers in one data centre."""

    servers: str  # bootstrap brokers: `host:port`, separated by commas
    prefix: str = "ams"  # prefix of our topics' names; without a dot
    replication: int = 3  # brokers that keep each message
    min_isr: int = 2  # brokers that must have a message before it counts as stored
    tls: bool = False
    ca_file: str = ""  # CA certificates (PEM) the brokers are checked by; empty = the system's
    sasl: str = "scram-sha-512"  # how the user logs in: `plain`, `scram-sha-256` or `scram-sha-512`
    user: str = ""  # empty = no login
    password: str = field(default="", repr=False)
    retention: Milliseconds = Milliseconds(7 * 86_400_000)  # of topics without their own
    idempotency_window: Milliseconds | None = None  # None: the topic's retention
    max_batch_bytes: int = 17 * 2**20  # a request of 16 MiB, and space for headers
    tail_cache_bytes: int = 64_000_000  # memory for the newest messages of all topics
    ahead_bytes: int = 32_000_000  # memory for prefetched messages
    patience: float = 8.0  # timeout of a call in seconds; clients give up after ten
    request_timeout: float = 3.5  # seconds a broker has to answer one request; then its connection is given up


def addresses(options: KafkaOptions) -> list[tuple[str, int]]:
    """Return host and port of the bootstrap brokers; raise `BadSettings` for bad syntax."""
    try:
        return [(host, port) for host, port, _ in collect_hosts(options.servers)]
    except ValueError:
        raise BadSettings(f"kafka_servers is host:port, or several with commas, not {options.servers}") from None


def access(options: KafkaOptions) -> dict[str, Any]:
    """Return the arguments for `aiokafka.conn.create_conn`. Raises `BadSettings` for a file without certificates."""
    transport = "SSL" if options.tls else "PLAINTEXT"
    words: dict[str, Any] = {"security_protocol": f"SASL_{transport}" if options.user else transport}
    if options.tls:
        try:
            words["ssl_context"] = ssl.create_default_context(cafile=options.ca_file or None)
        except OSError as error:  # also `ssl.SSLError`
            raise BadSettings(f"kafka_ca_file {options.ca_file} cannot be used: {error.strerror}") from error
    if options.user:
        words["sasl_mechanism"] = options.sasl.upper()
        words["sasl_plain_username"] = options.user
        words["sasl_plain_password"] = options.password
    return words
