"""Checkpoints that are too old to go on from."""

import json
from pathlib import Path

import pytest

from ams.pipeline.errors import StaleCheckpoint
from ams.pipeline.sink.writer import local_folder, refuse_stale

DAY = 86400.0
BEGUN = 1_700_000_000.0


def _checkpoint(folder: Path, offsets: int, commits: int) -> Path:
    """A checkpoint with so many batches begun, and so many finished; the last was begun at `BEGUN`."""
    for name, count in (("offsets", offsets), ("commits", commits)):
        (folder / name).mkdir()
        for number in range(count):
            time = int(1000 * (BEGUN - DAY * (count - 1 - number)))
            (folder / name / str(number)).write_text(f"v1\n{json.dumps({'batchTimestampMs': time, 'conf': {}})}\n{{}}")
            (folder / name / f".{number}.crc").touch()
            (folder / name / f"{number + 9}.tmp").touch()
    return folder


def test_a_batch_that_was_begun_long_ago_and_never_finished_is_refused(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, offsets=12, commits=11)

    refuse_stale(checkpoint, DAY, now=BEGUN + DAY)
    with pytest.raises(StaleCheckpoint, match=r"batch 11 of .* was begun 1 day, 0:00:01 ago .*\(keyWindow is 1 day"):
        refuse_stale(checkpoint, DAY, now=BEGUN + DAY + 1)


def test_finished_batches_may_be_of_any_age(tmp_path: Path) -> None:
    refuse_stale(_checkpoint(tmp_path, offsets=3, commits=3), DAY, now=BEGUN + 1000 * DAY)
    refuse_stale(tmp_path / "none", DAY)


@pytest.mark.parametrize(
    ("checkpoint", "folder"),
    [("/a/b", "/a/b"), ("file:/a/b%20c", "/a/b c"), ("file:///a", "/a"), ("hdfs://n/a", None), (None, None)],
)
def test_a_checkpoint_on_this_machine_is_known_by_its_scheme(checkpoint: str | None, folder: str | None) -> None:
    assert local_folder(checkpoint) == (folder and Path(folder))
