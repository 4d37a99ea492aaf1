"""Runs that are killed while they write, again and again: in the end each batch is there once."""

import multiprocessing
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from ams.tables import log
from ams.tables.upkeep import check, merge
from tests.tables.making import MONDAY, TUESDAY, append, contents, table

pytestmark = [pytest.mark.faults, pytest.mark.long]

BATCHES = 24


def run_appends(root: str, confirmed: str) -> None:
    """Append all unconfirmed batches, as a run does, with merges between them."""
    log.CHECKPOINT_EVERY = 3
    done = Path(confirmed)
    for number in range(len(done.read_bytes()), BATCHES):
        append(table(root), number, [(number, MONDAY), (number, TUESDAY)])
        with done.open("ab") as file:
            file.write(b".")
        if number % 5 == 4:
            merge(root)


def start(*arguments: str) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=run_appends, args=arguments)
    process.start()
    return process


def test_a_run_that_is_killed_again_and_again_has_each_batch_once(tmp_path: Path) -> None:
    root, confirmed = str(tmp_path / "table"), tmp_path / "confirmed"
    confirmed.write_bytes(b"")
    for kill in range(6):
        process = start(root, str(confirmed))
        seen = len(confirmed.read_bytes())
        while process.is_alive() and len(confirmed.read_bytes()) < seen + 2:
            time.sleep(0.001)
        time.sleep(kill * 0.008)
        process.kill()
        process.join()
        assert len(contents(root)) >= 2 * len(confirmed.read_bytes())
    process = start(root, str(confirmed))
    process.join()

    assert process.exitcode == 0
    assert contents(root) == {(number, day): 1 for number in range(BATCHES) for day in (MONDAY, TUESDAY)}
    assert check(root).wrong == []
