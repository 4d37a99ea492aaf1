"""Tables read by foreign programs: DuckDB over the files that `deltalake` lists."""

from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from ams.tables.location import Location


def by_duckdb(path: Path | str, query: str, **others: Path) -> list[tuple[Any, ...]]:
    """Run a DuckDB query on the table at `path`, called `rows` there, and on others by their names."""
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        for name, each in {"rows": path, **others}.items():
            table = DeltaTable(str(each), storage_options=Location.of(each).options)
            connection.register(name, table.to_pyarrow_dataset())
        return connection.execute(query).fetchall()


def files_of(path: Path) -> list[str]:
    return sorted(DeltaTable(str(path)).get_add_actions(flatten=True).column("path").to_pylist())
