"""Engines of the services in a test run: `pytest --shape cluster` puts them on Kafka and PostgreSQL.

Every data folder then has its own database and Kafka prefix, on the run's one broker and one PostgreSQL. So a restarted
service finds its data again. Nothing else of a test changes. Tests of the embedded engines alone carry
`pytest.mark.embedded` with the reason, and are deselected.
"""

import os
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

SHAPES = ("embedded", "cluster")
VARIABLE = "TESTED_SHAPE"  # tells the processes of a run the chosen shape


def choose(shape: str) -> None:
    """Choose for this process and its children."""
    os.environ[VARIABLE] = shape


def is_cluster() -> bool:
    return os.environ.get(VARIABLE) == "cluster"


def settings(data: Path) -> dict[str, object]:
    """Return the settings that a service on this data folder needs beside a test's own."""
    return on_cluster(data) if is_cluster() else {}


def on_cluster(data: Path) -> dict[str, object]:
    """Return settings that put a service on this data folder on Kafka and PostgreSQL, whatever was chosen."""
    return dict(_cluster(data.absolute()))


def environment(data: Path) -> dict[str, str]:
    """Return the same settings as environment variables."""
    return {f"AMS_{name.upper()}": str(value) for name, value in settings(data).items()}


@cache
def _cluster(data: Path) -> tuple[tuple[str, object], ...]:
    from tests.support.parts import kafka_prefix, kafka_servers, new_database

    url = urlsplit(new_database())
    address = url._replace(netloc=f"{url.username}@{url.hostname}:{url.port}").geturl()
    return (
        ("log", "kafka"), ("kafka_servers", kafka_servers()), ("kafka_prefix", kafka_prefix()),
        ("kafka_replication", 1), ("kafka_min_isr", 1), ("registry", address), ("registry_password", url.password),
    )  # fmt: skip
