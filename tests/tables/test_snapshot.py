import json
import os
import pickle
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from ams.tables import log
from ams.tables.errors import WrongTable
from ams.tables.snapshot import open_table
from ams.tables.table import Table
from tests.tables.making import MONDAY, QUERY, SCHEMA, TUESDAY, append, contents, table, write


def test_files_tell_their_batch_partition_and_ranges(root: Path) -> None:
    append(table(root), 12, [(5, MONDAY), (3, MONDAY), (4, TUESDAY), (9, None)])

    nowhere, monday, tuesday = table(root).snapshot().files

    assert (monday.batch, monday.rows, monday.partition) == (12, 2, {"day": "2024-03-04"})
    assert (monday.least, monday.greatest) == ({"n": 3}, {"n": 5})
    assert monday.size == os.path.getsize(root / monday.path)
    assert (tuesday.rows, nowhere.partition) == (1, {"day": None})
    assert pickle.loads(pickle.dumps(monday)) == monday


def test_files_are_selected_by_partition_and_by_what_is_known_of_them(root: Path) -> None:
    append(table(root), 0, [(1, MONDAY), (2, TUESDAY), (3, None)])
    append(table(root), 1, [(4, MONDAY)])
    snapshot = table(root).snapshot()

    monday = snapshot.select([{"day": "2024-03-04"}])

    assert [each.batch for each in monday] == [0, 1]
    assert [each.rows for each in snapshot.select([{"day": ""}])] == [1]
    assert snapshot.select(where=lambda file: file.least["n"] > 3) == [monday[1]]
    assert [rows.to_pylist() for rows in snapshot.batches(["n"], monday[1:])] == [[{"n": 4}]]


def test_a_partition_must_name_all_columns_that_partitions_are_by(root: Path) -> None:
    results = table(root)
    results.replace(write(results, [(1, MONDAY)]))

    for wrong in ({}, {"day": "2024-03-04", "n": "1"}, {"date": "2024-03-04"}):
        with pytest.raises(WrongTable, match=r"has partitions by \('day',\), not by"):
            results.replace([], [wrong])

    assert contents(root) == {(1, MONDAY): 1}


def test_versions_are_read_by_number_and_by_time_whatever_the_times_of_the_files(root: Path) -> None:
    append(table(root), 0, [(1, MONDAY)])
    then = datetime.now(UTC)
    time.sleep(0.01)
    append(table(root), 1, [(2, MONDAY)])
    for each in (root / "_delta_log").glob("*.json"):
        os.utime(each, (0, 0))  # as after copying the table

    found = table(root)

    assert (found.snapshot(then).version, found.snapshot(datetime.now(UTC)).version, found.snapshot(1).batch) == (
        1,
        2,
        0,
    )
    assert found.snapshot(then).time <= then
    with pytest.raises(WrongTable, match=r"has no version of 2000-01-01T00:00:00\+00:00"):
        found.snapshot(datetime(2000, 1, 1, tzinfo=UTC))
    with pytest.raises(WrongTable, match="has no version 9"):
        found.snapshot(9)


def test_what_is_no_table_is_told(root: Path) -> None:
    with pytest.raises(WrongTable, match="is no table: it has no _delta_log"):
        open_table(str(root))
    with pytest.raises(WrongTable, match="is no table"):
        open_table(str(root), datetime.now(UTC))
    assert not table(root).exists()


@pytest.mark.parametrize(
    ("configuration", "named"),
    [({"delta.enableDeletionVectors": "true"}, "deletionVectors"), ({"delta.enableChangeDataFeed": "true"}, "4")],
)
def test_tables_that_need_more_are_refused_by_name(root: Path, configuration: dict[str, str], named: str) -> None:
    DeltaTable.create(str(root), SCHEMA, configuration=configuration)

    with pytest.raises(WrongTable, match=rf"was made by another program: it needs .*{named}"):
        open_table(str(root))


def test_a_table_with_columns_mapped_is_refused_by_name(root: Path) -> None:
    """As Spark makes one: version 2 and 5, and names of their own in the files."""
    Table(str(root), SCHEMA).append(QUERY, 0, [])
    first = root / log.commit_path(0)
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        line.update({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}} if "protocol" in line else {})
        if metadata := line.get("metaData"):
            metadata["configuration"] |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
            schema = json.loads(metadata["schemaString"])
            for number, field in enumerate(schema["fields"]):
                names = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": f"col-{number}"}
                field["metadata"] |= names
            metadata["schemaString"] = json.dumps(schema)
    first.write_text("\n".join(map(json.dumps, lines)))

    with pytest.raises(WrongTable, match="was made by another program: it needs .* columnMapping"):
        open_table(str(root))


def test_a_table_of_features_that_nobody_knows_is_refused(root: Path) -> None:
    append(table(root), 0, [(1, MONDAY)])
    first = root / log.commit_path(0)
    first.write_text(first.read_text().replace('"minReaderVersion":1', '"minReaderVersion":9'))

    with pytest.raises(WrongTable, match="cannot be read: .*reader version 9"):
        open_table(str(root))
