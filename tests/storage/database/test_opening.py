"""Migrations and tables must lead to the same database, or new and old installations would differ."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine

from ams.authn.store.tables import AUTHN
from ams.core.errors import Unusable
from ams.storage.database.schema import DatabaseSchema, create, migrate, prepare
from ams.storage.registry.tables import REGISTRY
from tests.support.administration import ENGINES


@contextlib.contextmanager
def empty_database(dialect: str) -> Iterator[Connection]:
    """Yield a connection to an empty database; all changes are rolled back."""
    if dialect == "sqlite":
        engine = create_engine("sqlite://")
        with engine.begin() as opened:
            yield opened
        engine.dispose()
        return
    from tests.support.databases import engine_to_nothing

    engine = engine_to_nothing()
    with engine.connect().execution_options(begin="BEGIN") as opened:
        yield opened
    engine.dispose()


@pytest.fixture(params=ENGINES)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connection(dialect: str) -> Iterator[Connection]:
    with empty_database(dialect) as opened:
        yield opened


@pytest.fixture(params=[REGISTRY, AUTHN], ids=lambda schema: schema.what)
def schema(request: pytest.FixtureRequest) -> DatabaseSchema:
    found: DatabaseSchema = request.param
    return found


def describe_tables(connection: Connection) -> dict[str, list[str]]:
    """Return columns, constraints and indexes of each table, in any order."""
    if connection.dialect.name == "postgresql":
        found: dict[str, list[str]] = defaultdict(list)
        for table, line in connection.exec_driver_sql(CATALOGUES):
            found[table].append(line)
        return {table: sorted(lines) for table, lines in found.items()}
    rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {name: sorted(re.split(r",\s+(?=[A-Z]|[a-z_]+ [A-Z])|\n\)?", sql)) for name, sql in rows}


CATALOGUES = """
    SELECT table_name, concat_ws(' ', column_name, data_type, is_nullable, character_maximum_length, column_default,
        col_description(concat(table_schema, '.', table_name)::regclass, ordinal_position::int))
        FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL SELECT conrelid::regclass::text, concat_ws(' ', conname, pg_get_constraintdef(oid))
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
"""


def test_migrations_give_the_tables_a_new_database_gets(
    connection: Connection, dialect: str, schema: DatabaseSchema
) -> None:
    migrate(connection, schema)
    migrated = describe_tables(connection)
    connection.rollback()
    with empty_database(dialect) as new:
        create(new, schema)
        created = describe_tables(new)

    assert migrated == created


def test_migrations_leave_nothing_to_do(connection: Connection, schema: DatabaseSchema) -> None:
    migrate(connection, schema)
    tables = [schema.tables, schema.outcomes.metadata] if connection.dialect.name == "postgresql" else [schema.tables]
    context = MigrationContext.configure(connection, opts={"version_table": schema.version})
    assert compare_metadata(context, tables) == []


def test_the_head_is_the_newest_migration(schema: DatabaseSchema) -> None:
    config = Config()
    config.set_main_option("script_location", schema.migrations)
    assert ScriptDirectory.from_config(config).get_current_head() == schema.head


def test_a_database_of_an_older_version_is_migrated(connection: Connection, schema: DatabaseSchema) -> None:
    connection.exec_driver_sql(f"CREATE TABLE {schema.version} (version_num VARCHAR(32) NOT NULL)")
    prepare(connection, schema)
    assert set(schema.tables.tables) <= set(describe_tables(connection))
    assert connection.exec_driver_sql(f"SELECT version_num FROM {schema.version}").scalar() == schema.head


def test_a_database_of_a_newer_version_is_refused(connection: Connection, schema: DatabaseSchema) -> None:
    create(connection, schema)
    connection.exec_driver_sql(f"UPDATE {schema.version} SET version_num = '9999'")
    with pytest.raises(Unusable, match="newer version"):
        prepare(connection, schema)


@pytest.mark.parametrize(
    ("schema", "table"), [(REGISTRY, "letters"), (AUTHN, "authn_letters")], ids=["registry", "certificate service"]
)
def test_somebody_elses_database_is_refused(connection: Connection, schema: DatabaseSchema, table: str) -> None:
    connection.exec_driver_sql(f"CREATE TABLE {table} (text TEXT)")
    with pytest.raises(Unusable, match="belongs to something else"):
        prepare(connection, schema)


@pytest.mark.parametrize("first", [REGISTRY, AUTHN], ids=lambda schema: schema.what)
def test_registry_and_certificate_service_share_a_database_in_any_order(
    connection: Connection, first: DatabaseSchema
) -> None:
    second = AUTHN if first is REGISTRY else REGISTRY
    for each in (first, second, first, second):
        prepare(connection, each)
    assert set(REGISTRY.tables.tables) | set(AUTHN.tables.tables) <= set(describe_tables(connection))
