"""An empty registry, or certificate service, on the run's PostgreSQL, for one test after the other."""

import atexit
import os
from collections.abc import Callable
from functools import cache

import psycopg
from psycopg.rows import TupleRow
from sqlalchemy import Engine, insert

from ams.authn.store.tables import AUTHN, sealing
from ams.storage.database.postgresql import engine_to
from ams.storage.database.schema import create
from ams.storage.postgresql import conninfo
from ams.storage.registry.tables import METADATA, REGISTRY, keys
from ams.storage.secrets import Secrets
from tests.support.parts import template_database

_KEPT = {"keys", "alembic_version"}
_KINDS = {"registry": (REGISTRY, keys), "authn": (AUTHN, sealing)}
"""Schemas, and their tables of encryption keys."""


def empty_registry(key: bytes) -> str:
    """Return the URL of an empty database with the tables of a registry.

    All tests of a process share it: emptying it takes milliseconds, creating one takes a second.
    """
    url, connection = _create_database("registry", key)
    tables = [*reversed(METADATA.sorted_tables), REGISTRY.outcomes]
    # The audit log's triggers allow only deletions by a pruning.
    connection.execute(f"INSERT INTO audit_prunings (at, until) VALUES (0, {2**62}); DELETE FROM audit")
    connection.execute("; ".join(f"DELETE FROM {table.name}" for table in tables if table.name not in _KEPT))
    return url


def empty_store(key: bytes) -> str:
    """Return the URL of an empty database with the certificate service's tables, shared likewise."""
    url, connection = _create_database("authn", key)
    tables = [*reversed(AUTHN.tables.sorted_tables), AUTHN.outcomes]
    connection.execute("; ".join(f"DELETE FROM {table.name}" for table in tables if table is not sealing))
    return url


def engine_to_nothing() -> Engine:
    """Return an engine for an empty database without tables; roll all changes back."""
    return engine_to(conninfo(_nothing()), 1)


@cache
def _nothing() -> str:
    return _own("nothing", lambda _: None)


@cache
def _create_database(kind: str, key: bytes) -> tuple[str, psycopg.Connection[TupleRow]]:
    """Create a database of a kind for this process, and a connection to empty it."""
    schema, fingerprints = _KINDS[kind]

    def fill(url: str) -> None:
        engine = engine_to(conninfo(url), 1)
        with engine.execution_options(begin="BEGIN").begin() as connection:
            create(connection, schema)
            connection.execute(insert(fingerprints).values(fingerprint=Secrets(key).fingerprint))
        engine.dispose()

    url = _own(kind, fill)
    connection = psycopg.connect(url, autocommit=True)
    atexit.register(connection.close)
    return url, connection


def _own(kind: str, fill: Callable[[str], None]) -> str:
    """Create a database for this process; it ends with its server."""
    server = ""

    def prepare(url: str) -> None:
        nonlocal server
        server = url.rsplit("/", 1)[0]
        fill(url)

    name = template_database(f"{kind}_{os.getpid()}", prepare)
    return f"{server}/{name}"
