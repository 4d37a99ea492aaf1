import multiprocessing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from ams.tables import log
from ams.tables import table as tables
from ams.tables.errors import WrongTable
from tests.tables.making import MONDAY, QUERY, SCHEMA, append, contents, table, write


def commit_raw(delta: DeltaTable, actions: list[Any], query: str = QUERY, batch: int = 0) -> None:
    properties = CommitProperties(max_commit_retries=0, app_transactions=[Transaction(query, batch)])
    delta._table.create_write_transaction(actions, "append", ["day"], delta.schema(), None, properties, log.HOOKS)


def test_delta_rs_by_itself_takes_a_batch_twice_and_a_lower_one_and_files_that_are_not_there(root: Path) -> None:
    append(table(root), 7, [(1, MONDAY)])
    ghost = AddAction("ghost.parquet", 1, {"day": "2024-03-04"}, 0, True, '{"numRecords": 1}')

    commit_raw(DeltaTable(root), [ghost], batch=7)
    commit_raw(DeltaTable(root), [], batch=3)

    assert DeltaTable(root)._table.transaction_version(QUERY) == 3
    assert len(DeltaTable(root).file_uris()) == 2


def test_a_file_that_has_another_size_is_refused(root: Path) -> None:
    (found,) = write(table(root), [(1, MONDAY)])
    other = replace(found, size=found.size + 1)

    with pytest.raises(WrongTable, match=rf"has {found.size} bytes instead of {found.size + 1}; nothing was stored"):
        table(root).append(QUERY, 0, [other])

    assert not table(root).exists()


def test_delta_rs_ignores_a_wider_schema_in_a_commit(root: Path) -> None:
    append(table(root), 0, [(1, MONDAY)])
    delta = DeltaTable(root)
    wider = Schema.from_arrow(SCHEMA.append(pa.field("more", pa.string())))

    delta._table.create_write_transaction([], "append", ["day"], wider, None, None, log.HOOKS)

    assert [field.name for field in DeltaTable(root).schema().fields] == ["n", "day"]


def test_who_is_always_beaten_gives_up_and_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(table(root), 0, [(1, MONDAY)])

    def beaten(*_: object) -> None:
        raise CommitFailedError("no")

    monkeypatch.setattr(tables, "_write", beaten)

    with pytest.raises(WrongTable, match="is changed by others all the time; nothing was stored"):
        append(table(root), 1, [(2, MONDAY)])


def test_of_two_runs_at_once_with_different_checkpoints_one_is_refused(root: Path) -> None:
    ended = race(root, [QUERY, "another"])

    assert sorted(ended) == ["done", "refused"]
    assert contents(root) == {(number, MONDAY): 1 for number in range(20)}


def race(root: Path | str, names: list[str]) -> list[str]:
    """Let processes write at once: batches of a query, or the rows of a day."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(len(names)) as pool, context.Manager() as manager:
        start = manager.Barrier(len(names))
        return pool.starmap(run, [(str(root), name, start) for name in names])


def run(root: str, name: str, start: Any) -> str:
    start.wait()
    try:
        for number in range(20):
            if name.startswith("2024"):
                table(root).replace(
                    write(table(root), [(number, datetime.fromisoformat(name).date())]), [{"day": name}]
                )
            else:
                append(table(root), number, [(number, MONDAY)], name)
    except WrongTable:
        return "refused"
    return "done"
