import itertools
import os
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.pipeline.errors import WrongTable
from ams.pipeline.tables import files, manifest
from ams.pipeline.tables.commits import Commits, Shape
from ams.pipeline.tables.files import LocalFiles
from tests.pipeline.tables.crashing import QUERY, SHAPE, Crashing, Killed, append, listed, merge, seen, write

MONDAY, TUESDAY = "2024-03-04", "2024-03-05"
BATCHES = [[(MONDAY, 1), (MONDAY, 2), (TUESDAY, 3)], [(MONDAY, 4)], [], [(TUESDAY, 5), (MONDAY, 6)]]
ALL = Counter(row for batch in BATCHES for row in batch)
NEVER = 10**9


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process does not lose what it did not sync, and these tests kill processes only."""
    monkeypatch.setattr(files, "_sync", lambda _path: None)


@pytest.fixture
def few_commits_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "FOLD", 2)


def work_through(commits: Commits) -> None:
    """Do what a run does, whatever an earlier one did."""
    for number, rows in enumerate(BATCHES):
        if number >= commits.recover().batch:
            append(commits, number, rows)
        if number == 1 and commits.recover().batch == 1:
            merge(commits, [MONDAY])
    merge(commits, [MONDAY, TUESDAY])


def assert_whole(root: str) -> None:
    commits = Commits(LocalFiles(), root)
    commits.recover()
    assert listed(commits) == seen(root) == ALL
    assert LocalFiles().names(f"{root}/_work") == []


@pytest.mark.usefixtures("few_commits_a_snapshot")
def test_a_kill_at_any_call_loses_and_doubles_nothing(tmp_path: Path) -> None:
    for calls in itertools.count():
        root = str(tmp_path / "table")
        try:
            work_through(Commits(Crashing(calls), root))
            break
        except Killed:
            assert max(seen(root).values(), default=1) == 1

        work_through(Commits(LocalFiles(), root))

        assert_whole(root)
        shutil.rmtree(root)
    assert calls > 30


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 25), max_size=8))
def test_kill_after_kill_ends_as_none(tmp_path_factory: pytest.TempPathFactory, kills: list[int]) -> None:
    root = str(tmp_path_factory.mktemp("kills") / "table")

    for calls in kills:
        try:
            work_through(Commits(Crashing(calls), root))
        except Killed:
            continue
    work_through(Commits(LocalFiles(), root))

    assert_whole(root)


def test_a_batch_that_comes_again_is_not_added_again(root: str) -> None:
    commits = Commits(LocalFiles(), root)
    append(commits, 7, [(MONDAY, 1)])

    append(commits, 7, [(MONDAY, 1)])

    assert seen(root) == {(MONDAY, 1): 1}


def test_a_kill_before_the_commit_leaves_nothing_readers_see(root: str) -> None:
    with pytest.raises(Killed):
        append(Commits(Crashing(1), root), 0, [(MONDAY, 1)])  # synced, not committed

    assert seen(root) == {}
    assert Commits(LocalFiles(), root).recover().batch == -1
    assert os.listdir(f"{root}/_work") == []


def test_a_kill_after_the_commit_is_made_good_by_the_next_start(root: str) -> None:
    dying = Crashing(2)
    with pytest.raises(Killed):
        append(Commits(dying, root), 0, [(MONDAY, 1)])
    assert (dying.done, seen(root)) == (["sync", "write"], {})

    Commits(LocalFiles(), root).recover()

    assert seen(root) == {(MONDAY, 1): 1}


def test_the_manifest_knows_what_each_folder_holds(root: str) -> None:
    commits = Commits(LocalFiles(), root)
    append(commits, 12, [(MONDAY, 5), (MONDAY, 3), (TUESDAY, 4)])

    monday, tuesday = commits.manifest.load().all()

    assert monday.path == f"day={MONDAY}/batch-1f0c9a7e-000012"
    assert (monday.batch, monday.rows, monday.files, monday.ranges) == (12, 2, 1, {"n": (3, 5)})
    assert monday.bytes == os.path.getsize(f"{root}/{monday.path}/part-0.parquet")
    assert tuesday.partition == f"day={TUESDAY}"


def test_a_merge_keeps_the_number_of_the_newest_batch(root: str) -> None:
    commits = Commits(LocalFiles(), root)
    append(commits, 0, [(MONDAY, 1)])
    append(commits, 1, [(MONDAY, 2), (TUESDAY, 3)])

    merge(commits, [MONDAY])

    assert [(each.path, each.batch, each.rows) for each in commits.manifest.load().all()] == [
        (f"day={MONDAY}/merged-000000000003", 1, 2),
        (f"day={TUESDAY}/batch-1f0c9a7e-000001", 1, 1),
    ]


@pytest.mark.usefixtures("few_commits_a_snapshot")
def test_snapshots_take_the_place_of_commits(root: str) -> None:
    commits = Commits(LocalFiles(), root)

    for number in range(5):
        append(commits, number, [(MONDAY, number)])

    assert sorted(os.listdir(f"{root}/_manifest")) == ["commit-000000000005.json", "snapshot-000000000004.json"]
    assert listed(commits) == {(MONDAY, number): 1 for number in range(5)}


def test_another_query_is_refused_and_changes_nothing(root: str) -> None:
    commits = Commits(LocalFiles(), root)
    append(commits, 0, [(MONDAY, 1)])

    with pytest.raises(
        WrongTable, match="was written from another checkpoint; give another folder, or that checkpoint"
    ):
        append(commits, 1, [(MONDAY, 2)], query="another")

    assert seen(root) == {(MONDAY, 1): 1}


def test_a_checkpoint_older_than_the_table_is_refused(root: str) -> None:
    commits = Commits(LocalFiles(), root)
    append(commits, 4, [(MONDAY, 1)])

    with pytest.raises(WrongTable, match="knows batch 4 already, and this is batch 3: the checkpoint is older"):
        append(commits, 3, [(MONDAY, 2)])


def test_other_columns_are_refused(root: str) -> None:
    commits = Commits(LocalFiles(), root)
    append(commits, 0, [(MONDAY, 1)])

    with pytest.raises(WrongTable, match="has other columns or partitions than this job writes"):
        commits.append(Shape("struct<n:string>", ("day",)), QUERY, 1, lambda path: write(path, []))


def test_two_writers_at_once_are_noticed(root: str) -> None:
    commits = Commits(LocalFiles(), root)

    def slowly(path: str) -> None:
        append(commits, 0, [(MONDAY, 1)])
        write(path, [(MONDAY, 1)])

    with pytest.raises(WrongTable, match="is written by two runs at once; nothing of this batch was stored"):
        commits.append(SHAPE, QUERY, 0, slowly)

    assert seen(root) == {(MONDAY, 1): 1}


def test_a_merge_that_lacks_rows_is_refused(root: str) -> None:
    commits = Commits(LocalFiles(), root)
    append(commits, 0, [(MONDAY, 1), (MONDAY, 2)])

    with pytest.raises(WrongTable, match="does not hold the rows its manifest says; nothing changed"):
        commits.merge(commits.recover(), SHAPE, [f"day={MONDAY}"], lambda path: write(path, [(MONDAY, 1)]))

    assert seen(root) == {(MONDAY, 1): 1, (MONDAY, 2): 1}


def test_a_merge_leaves_alone_what_is_not_its_own(root: str) -> None:
    commits = Commits(LocalFiles(), root)
    append(commits, 0, [(MONDAY, 1)])
    Path(root, f"day={MONDAY}", "notes.txt").write_text("mine")

    with pytest.raises(WrongTable, match=r"holds notes\.txt, which is not of it; move it away"):
        merge(commits, [MONDAY])


def test_a_manifest_with_a_commit_missing_is_said(root: str) -> None:
    commits = Commits(LocalFiles(), root)
    for number in range(3):
        append(commits, number, [(MONDAY, number)])
    os.unlink(f"{root}/_manifest/commit-000000000002.json")

    with pytest.raises(WrongTable, match="lacks commit 2"):
        commits.recover()


def test_a_manifest_of_something_else_is_said(root: str) -> None:
    os.makedirs(f"{root}/_manifest")
    Path(root, "_manifest", "commit-000000000001.json").write_bytes(msgspec.json.encode({"version": 9}))

    with pytest.raises(WrongTable, match="is not of a table of this version"):
        Commits(LocalFiles(), root).recover()
