"""Query plans of the registry's statements, to check that none scans a table row by row."""

from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import Connection, event, text

from ams.storage.registry.registry import Registry

_Asked = list[tuple[str, Any]]


async def searched_through(registry: Registry, ask: Callable[[], Awaitable[object]]) -> list[str]:
    """Return the scans in the plans of all statements that `ask` executes."""
    engine = registry._database._store._engine  # type: ignore[attr-defined]
    asked: _Asked = []

    def note(_connection: object, _cursor: object, statement: str, given: Any, *_: object) -> None:
        if statement.startswith("SELECT"):
            asked.append((statement, given))

    event.listen(engine, "before_cursor_execute", note)
    try:
        await ask()
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert asked, "nothing was asked"
    steps = await registry._database.read(lambda connection: _explain_statements(connection, asked))
    return [step for step in steps if step.startswith("SCAN") or "Seq Scan" in step]


def _explain_statements(connection: Connection, asked: _Asked) -> list[str]:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL enable_seqscan = off"))  # as with too many rows for a scan
    explain = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN "}[connection.dialect.name]
    plans = [connection.exec_driver_sql(explain + statement, given).all() for statement, given in asked]
    return [str(row[-1]).strip() for rows in plans for row in rows]
