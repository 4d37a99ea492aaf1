"""Which engines the services of a test run stand on: `pytest --shape cluster` puts them on Kafka and PostgreSQL.

Every data folder then has a database and a Kafka prefix of its own, on the one broker and the one PostgreSQL that the
run shares, so that a service started again on its folder finds what it had. Everything else of a test stays as it is.
Tests of what only the embedded engines do carry `pytest.mark.embedded` with the reason, and are left out.
"""

import os
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

SHAPES = ("embedded", "cluster")
VARIABLE = "TESTED_SHAPE"  # tells the processes of a run what was chosen


def choose(shape: str) -> None:
    """Choose for this process and those it starts."""
    os.environ[VARIABLE] = shape


def is_cluster() -> bool:
    return os.environ.get(VARIABLE) == "cluster"


def settings(data: Path) -> dict[str, object]:
    """Return what a service on this data folder has to be told beside what a test wants."""
    return on_cluster(data) if is_cluster() else {}


def on_cluster(data: Path) -> dict[str, object]:
    """Return what puts a service on this data folder on Kafka and PostgreSQL, whatever was chosen."""
    return dict(_cluster(data.absolute()))


def environment(data: Path) -> dict[str, str]:
    """Return the same for a service that is a process of its own."""
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
