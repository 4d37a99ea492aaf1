"""The table of the audit log, for each that keeps one, and what the database itself refuses to do to it.

Rows are added and never changed. They may be deleted only up to a moment that a row of the table of prunings says, so
that whatever was taken away is known. This holds for every statement, whoever sends it; it is no protection from
somebody who may drop triggers (`docs/decisions/0022`).
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    event,
)

_REFUSAL = "rows of the audit log stay as they are"
_KEPT = "old.at >= coalesce((SELECT max(until) FROM {name}_prunings), 0)"
_SQLITE = (
    f"CREATE TRIGGER {{name}}_unchanged BEFORE UPDATE ON {{name}} BEGIN SELECT raise(ABORT, '{_REFUSAL}'); END",
    f"CREATE TRIGGER {{name}}_kept BEFORE DELETE ON {{name}} WHEN {_KEPT} BEGIN SELECT raise(ABORT, '{_REFUSAL}'); END",
    # REPLACE takes rows away without those two; whoever adds what is there already adds nothing.
    "CREATE TRIGGER {name}_once BEFORE INSERT ON {name}"
    " WHEN EXISTS (SELECT 1 FROM {name} WHERE id = new.id OR number = new.number) BEGIN SELECT raise(IGNORE); END",
)
_POSTGRESQL = (
    f"CREATE FUNCTION {{name}}_stays() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    f" IF TG_OP = 'DELETE' AND NOT ({_KEPT}) THEN RETURN old; END IF;"
    f" RAISE EXCEPTION '{_REFUSAL}'; END $$",
    "CREATE TRIGGER {name}_stays BEFORE UPDATE OR DELETE ON {name} FOR EACH ROW EXECUTE FUNCTION {name}_stays()",
    "CREATE TRIGGER {name}_not_emptied BEFORE TRUNCATE ON {name} EXECUTE FUNCTION {name}_stays()",
)


def guards(name: str, dialect: str) -> list[str]:
    """Return the statements that make a database refuse changes of the table; for migrations, after both tables."""
    return [each.format(name=name) for each in (_POSTGRESQL if dialect == "postgresql" else _SQLITE)]


def prunings_of(table: Table) -> Table:
    """Return the table of prunings beside a table of events."""
    return table.metadata.tables[f"{table.name}_prunings"]


def audit_table(metadata: MetaData, name: str) -> Table:
    """Make the table and, beside it, that of prunings; a row is an `ams.storage.audit.event.AuditEvent`.

    Both are made with what keeps them as they are; a migration makes the same of `guards`.
    """
    _prunings_table(metadata, name)
    table = Table(
        name,
        metadata,
        Column("number", Integer, primary_key=True, autoincrement=True),
        Column("id", String(36), nullable=False, unique=True),
        Column("at", BigInteger, nullable=False, comment="milliseconds since the epoch"),
        Column("service", Text, nullable=False),
        Column("action", Text, nullable=False),
        Column("resource", Text, nullable=False),
        Column("actor", Text, nullable=False),
        Column("address", Text, nullable=False),
        Column("code", Integer, nullable=False),
        Column("result", Text, nullable=False),
        Column("reason", Text, nullable=False),
        Column("request", Text, nullable=False),
        Column("times", Integer, nullable=False),
        Index(f"{name}_by_at", "at"),
        Index(f"{name}_by_actor", "actor"),
    )
    event.listen(table, "after_create", _guard)
    return table


def _prunings_table(metadata: MetaData, name: str) -> None:
    Table(
        f"{name}_prunings",
        metadata,
        Column("number", Integer, primary_key=True, autoincrement=True),
        Column("at", BigInteger, nullable=False, comment="milliseconds since the epoch"),
        Column("until", BigInteger, nullable=False, comment="milliseconds since the epoch: what is older may go"),
    )


def _guard(target: Table, connection: Connection, **_: object) -> None:
    """Run with the making of the table; that of the prunings need not be there yet."""
    for statement in guards(target.name, connection.dialect.name):
        connection.exec_driver_sql(statement)
