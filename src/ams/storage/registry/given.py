"""Many rows or values given to a statement as one JSON text, on SQLite and on PostgreSQL.

A statement for each would give up the interpreter each time, and a busy service is slow to give it back. The two
databases read JSON alike but for the function that makes rows of it; each row has one column, `value`.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Select, String, TextClause, column, select, text

_ROWS = {
    "sqlite": "json_each(:rows) AS given",
    "postgresql": "json_array_elements(CAST(:rows AS json)) AS given",
}
_VALUES = {
    "sqlite": text("json_each(:given_values) AS given"),
    "postgresql": text("json_array_elements_text(CAST(:given_values AS json)) AS given"),
}


class ByRows:
    """A statement over rows: its text reads them from `{given}`, a row's third field as `text(2)` or `number(2)`."""

    def __init__(self, statement: str) -> None:
        statement = re.sub(r"\btext\((\d)\)", r"(given.value ->> \1)", statement)
        statement = re.sub(r"\bnumber\((\d)\)", r"CAST(given.value ->> \1 AS BIGINT)", statement)
        self._texts: dict[str, TextClause] = {
            dialect: text(statement.replace("{given}", rows)) for dialect, rows in _ROWS.items()
        }

    def run(self, connection: Connection, rows: Sequence[Sequence[object]], **said: object) -> CursorResult[Any]:
        """Run the statement once, for all rows; return what came of it. `said` are its other parameters."""
        return connection.execute(self._texts[connection.dialect.name], {"rows": json.dumps(rows), **said})


def among(connection: Connection, values: Iterable[str]) -> Select[Any]:
    """Return the query for these texts, for a condition `column.in_(...)` that holds however many there are."""
    rows = _VALUES[connection.dialect.name].bindparams(given_values=json.dumps(list(values)))
    return select(column("value", String)).select_from(rows)
