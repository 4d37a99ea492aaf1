"""Databases for registries: a file, or a fresh database with the tables on the PostgreSQL of this run."""

import contextlib
from collections.abc import Iterator

from sqlalchemy import insert

from ams.postgresql import conninfo
from ams.registry import preparing
from ams.registry.secrets import Secrets
from ams.registry.tables import keys
from tests.support.parts import scratch_database, template_database


@contextlib.contextmanager
def postgres_registry(key: bytes) -> Iterator[str]:
    """Yield the URL of a fresh database that holds an empty registry; dropped at the end."""

    def fill(url: str) -> None:
        from ams.registry.postgresql.connection import engine_to

        engine = engine_to(conninfo(url), 1)
        with engine.begin() as connection:
            preparing.create(connection)
            connection.execute(insert(keys).values(fingerprint=Secrets(key).fingerprint))
        engine.dispose()

    with scratch_database(template_database("registry", fill)) as url:
        yield url
