"""Runs that are killed while they write, again and again: each batch is there once in the end."""

import multiprocessing
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from ams.tables import log
from ams.tables.table import Table
from ams.tables.upkeep import check, merge
from tests.tables.making import MONDAY, SCHEMA, TUESDAY, append, contents, table, write

pytestmark = [pytest.mark.faults, pytest.mark.long]

BATCHES = 24
CONTEXT = multiprocessing.get_context("spawn")


def run(root: str, confirmed: str) -> None:
    """Append all batches that are not confirmed, as a run does, with merges between them."""
    log.CHECKPOINT_EVERY = 3
    done = Path(confirmed)
    for number in range(len(done.read_bytes()), BATCHES):
        append(table(root), number, [(number, MONDAY), (number, TUESDAY)])
        with done.open("ab") as file:
            file.write(b".")
        if number % 5 == 4:
            merge(root)


def replace_again_and_again(root: str) -> None:
    for number in range(10_000):
        results = table(root)
        results.replace(write(results, [(number, MONDAY), (number, TUESDAY)]))


def start(target: object, *arguments: str) -> BaseProcess:
    process = CONTEXT.Process(target=target, args=arguments)  # type: ignore[arg-type]
    process.start()
    return process


def test_a_run_that_is_killed_again_and_again_has_each_batch_once(tmp_path: Path) -> None:
    root, confirmed = str(tmp_path / "table"), tmp_path / "confirmed"
    confirmed.write_bytes(b"")
    for kill in range(6):
        process = start(run, root, str(confirmed))
        seen = len(confirmed.read_bytes())
        while process.is_alive() and len(confirmed.read_bytes()) < seen + 2:
            time.sleep(0.001)
        time.sleep(kill * 0.008)
        process.kill()
        process.join()
        assert len(contents(root)) >= 2 * len(confirmed.read_bytes())
    process = start(run, root, str(confirmed))
    process.join()

    assert process.exitcode == 0
    assert contents(root) == {(number, day): 1 for number in range(BATCHES) for day in (MONDAY, TUESDAY)}
    assert check(root).wrong == []


def test_results_are_whole_whenever_who_replaces_them_is_killed(tmp_path: Path) -> None:
    root = str(tmp_path / "results")
    Table(root, SCHEMA, ("day",)).replace([])
    for kill in range(3):
        process = start(replace_again_and_again, root)
        version = table(root).snapshot().version
        while table(root).snapshot().version < version + 3:
            found = contents(root)
            assert len(found) in (0, 2)
            assert len({number for number, _ in found}) <= 1
        time.sleep(kill * 0.006)
        process.kill()
        process.join()

        assert len(contents(root)) == 2
        assert len({number for number, _ in contents(root)}) == 1
