"""Options of a replay, and how far it is."""

import time
from pathlib import Path

import msgspec
import pytest

from ams.pipeline.errors import ChangedDefinition, StaleCheckpoint, WrongOption
from ams.pipeline.jobs.replay.job import Options
from ams.pipeline.jobs.replay.progress import Progress, keep, read_progress, refuse_stale

GIVEN = {"archive": "a", "topic": "GARDEN/plants", "to": "again"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "plants"}, "option topic: 'plants' is no PROJECT/TOPIC"),
        ({"topic": "a/b/c"}, "option topic: 'a/b/c' is no PROJECT/TOPIC"),
        ({"to": "a.b"}, "option to: 'a.b' is no name"),
        ({"name": ""}, "option name: '' is no name"),
        ({"slice": 0}, "option slice: at least one"),
        ({"start": "2024-03-05"}, "option start: '2024-03-05' is no time such as"),
        ({"start": "0001-01-01T00:00:00+14:00"}, "option start: '0001-01-01T00:00:00.14:00' is no time such as"),
        ({"stop": "soon"}, "option stop: 'soon' is no time"),
    ],
)
def test_what_cannot_be_replayed_is_told(options: dict[str, object], said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        Options(**{**GIVEN, **options})


def test_progress_is_kept_and_of_one_replay_only(tmp_path: Path) -> None:
    progress = Progress(replay="r/1", messages=5, start=0, stop=9, next=3, begun=1.0)
    assert read_progress(tmp_path / "work", "r/1") is None

    keep(tmp_path / "work", progress)

    assert read_progress(tmp_path / "work", "r/1") == progress
    with pytest.raises(ChangedDefinition, match="of a replay with other options"):
        read_progress(tmp_path / "work", "r/2")


def test_a_replay_that_was_left_too_long_ago_is_refused() -> None:
    hour_ago = Progress(replay="r/1", messages=5, start=0, stop=9, next=3, begun=time.time() - 3600)

    refuse_stale(hour_ago, 4000)
    refuse_stale(msgspec.structs.replace(hour_ago, next=9), 100)
    with pytest.raises(StaleCheckpoint, match="was left 1 hours ago within offsets 3 and following"):
        refuse_stale(hour_ago, 1800)
