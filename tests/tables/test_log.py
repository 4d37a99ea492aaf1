import itertools
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.tables import WrongTable, log
from ams.tables.upkeep import merge
from tests.tables.losing import DAMAGES, LosingMachine, ProcessKilled
from tests.tables.making import MONDAY, TUESDAY, Rows, append, append_batches, contents, table, write

BATCHES: list[Rows] = [[(1, MONDAY), (2, TUESDAY)], [(3, MONDAY)], [(4, TUESDAY), (5, MONDAY)]]
ENDLESS_STEPS = 10**9


@pytest.fixture(autouse=True)
def _checkpoint_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CHECKPOINT_EVERY", 2)


def rows_of(batches: list[Rows]) -> Counter[object]:
    return Counter(row for rows in batches for row in rows)


class AppendRun:
    """A run that appends all batches, and records in its checkpoint which are confirmed."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tables" / "archive"
        self.confirmed = 0

    def start(self) -> None:
        for number in range(self.confirmed, len(BATCHES)):
            append(table(self.root), number, BATCHES[number])
            self.confirmed = number + 1
            if number == 1:
                merge(str(self.root))


def assert_each_batch_is_there_once_or_unconfirmed(run: AppendRun, machine: LosingMachine) -> None:
    with machine.running(ENDLESS_STEPS):  # so that it knows what recovery synced
        log.recover(table(run.root).location)
    if not table(run.root).exists():
        assert run.confirmed == 0
        return
    confirmed, one_more = rows_of(BATCHES[: run.confirmed]), rows_of(BATCHES[: run.confirmed + 1])
    assert contents(run.root) in (confirmed, one_more)


OTHER_DAMAGES = [each for each in DAMAGES if each not in ("gone", "kept", "half", "zeros")]


@pytest.mark.parametrize("damage", ["gone", *(pytest.param(each, marks=pytest.mark.long) for each in OTHER_DAMAGES)])
def test_power_lost_at_any_sync_takes_back_nothing_confirmed(tmp_path: Path, damage: str) -> None:
    for syncs in itertools.count():
        folder = tmp_path / str(syncs)
        folder.mkdir()
        machine, run = LosingMachine(folder), AppendRun(folder)
        try:
            with machine.running(syncs):
                run.start()
            break
        except ProcessKilled:
            machine.lose_power([damage])

        assert_each_batch_is_there_once_or_unconfirmed(run, machine)
        run.start()

        assert contents(run.root) == rows_of(BATCHES)
        shutil.rmtree(folder)
    assert syncs > 20


@pytest.mark.parametrize("damage", ["gone", "first line"])
def test_power_lost_while_results_are_replaced_leaves_old_or_new_ones_whole(tmp_path: Path, damage: str) -> None:
    versions = [[], *([(number, MONDAY), (number, TUESDAY)] for number in range(3))]
    for syncs in itertools.count():
        folder = tmp_path / str(syncs)
        folder.mkdir()
        machine, results, confirmed = LosingMachine(folder), table(folder / "results"), 0
        try:
            with machine.running(syncs):
                for number in range(1, len(versions)):
                    results.replace(write(results, versions[number]))
                    confirmed = number
            break
        except ProcessKilled:
            machine.lose_power([damage])

        log.recover(table(folder / "results").location)
        if results.exists():
            assert contents(folder / "results") in (Counter(versions[confirmed]), Counter(versions[confirmed + 1]))
        else:
            assert confirmed == 0
        shutil.rmtree(folder)
    assert syncs > 20


@settings(max_examples=15, deadline=None)
@given(st.lists(
    st.tuples(
        st.integers(0, 40),
        st.sampled_from(["killed", "power lost"]),
        st.lists(st.sampled_from(DAMAGES), min_size=1),
    ),
    max_size=4,
))  # fmt: skip
def test_losses_are_repaired(tmp_path_factory: pytest.TempPathFactory, ends: list[tuple[int, str, list[str]]]) -> None:
    folder = tmp_path_factory.mktemp("ends")
    machine, run = LosingMachine(folder), AppendRun(folder)

    for syncs, end, damages in ends:
        try:
            with machine.running(syncs):
                run.start()
        except ProcessKilled:
            pass
        if end == "power lost":
            machine.lose_power(damages)
            assert_each_batch_is_there_once_or_unconfirmed(run, machine)
    with machine.running(ENDLESS_STEPS):
        run.start()
    machine.lose_power(["gone"])

    assert contents(run.root) == rows_of(BATCHES)


def test_delta_rs_reads_a_commit_that_was_cut_off_and_misses_the_number_of_its_batch(tmp_path: Path) -> None:
    append(table(tmp_path), 0, [(1, MONDAY)])
    newest = tmp_path / log.commit_path(1)
    newest.write_bytes(b"".join(newest.read_bytes().splitlines(keepends=True)[:2]))

    read = DeltaTable(str(tmp_path))

    assert (read.version(), len(read.file_uris())) == (1, 1)
    assert table(tmp_path).snapshot().batch == -1


def test_what_was_removed_is_told(tmp_path: Path) -> None:
    append(table(tmp_path), 0, [(1, MONDAY)])
    (tmp_path / log.commit_path(1)).write_bytes(b"")

    assert log.recover(table(tmp_path).location) == [
        f"{tmp_path}/{log.commit_path(1)} was not whole and not confirmed, and was removed"
    ]
    assert log.recover(table(tmp_path).location) == []
    assert contents(tmp_path) == {}


def test_an_older_commit_that_is_not_whole_is_no_loss_of_power_and_stays(tmp_path: Path) -> None:
    append(table(tmp_path), 0, [(1, MONDAY)])
    (tmp_path / log.commit_path(0)).write_bytes(b"{")

    assert log.recover(table(tmp_path).location) == []
    with pytest.raises(WrongTable, match="cannot be read: "):
        append(table(tmp_path), 1, [(2, MONDAY)])


def test_a_checkpoint_with_a_note_is_removed_and_the_log_read_without_it(tmp_path: Path) -> None:
    append_batches(tmp_path, 4)
    folder = tmp_path / log.FOLDER
    (checkpoint,) = folder.glob("*04.checkpoint.parquet")
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    (folder / "_checkpoint_begun").write_text("4")
    with pytest.raises(WrongTable, match="was left half written by a loss of power; start the run"):
        contents(tmp_path)

    assert len(log.recover(table(tmp_path).location)) == 2  # it, and the pointer to it

    assert contents(tmp_path) == {(number, MONDAY): 1 for number in range(4)}
    assert [each.name for each in folder.glob("*checkpoint*")] == ["00000000000000000002.checkpoint.parquet"]


def test_commits_say_what_they_do_and_how_many_actions_they_have(tmp_path: Path) -> None:
    append(table(tmp_path), 0, [(1, MONDAY), (2, TUESDAY)])
    found = [json.loads(line) for line in (tmp_path / log.commit_path(1)).read_text().splitlines()]
    assert [next(iter(line)) for line in found] == ["commitInfo", "add", "add", "txn"]
    assert found[0]["commitInfo"]["ams"] == {"does": "append", "actions": 3}
