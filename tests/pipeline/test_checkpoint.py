from pathlib import Path

import msgspec
import pytest

from ams.pipeline.checkpoint import Identity, Standing, guard, locked, read_standing, write
from ams.pipeline.errors import Busy, ChangedDefinition, WrongTable

MINE = Identity(name="walls", project="demo", rows={"source": "topic jobs", "steps": ("a",)}, options={"keep": 3})


def changed(**what: object) -> Identity:
    return msgspec.structs.replace(MINE, **what)


def begun(work: Path) -> Path:
    """Let a run of MINE have planned its first batch in a folder."""
    guard(work, MINE)
    (work / "checkpoint" / "offsets").mkdir(parents=True)
    (work / "checkpoint" / "offsets" / "0").touch()
    return work


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (changed(name="other"), "name"),
        (changed(project="other"), "project"),
        (changed(rows={"source": "topic other", "steps": ("a",)}), "source"),
    ],
)
def test_another_definition_is_refused_whatever_is_accepted(tmp_path: Path, now: Identity, what: str) -> None:
    begun(tmp_path)

    with pytest.raises(ChangedDefinition, match=rf"another definition \({what} changed\): give another folder"):
        guard(tmp_path, now, accept_change=True)
    guard(tmp_path, MINE)


def test_other_options_are_refused_until_they_are_accepted(tmp_path: Path) -> None:
    begun(tmp_path)
    now = changed(options={"keep": 4, "new": 1})

    with pytest.raises(ChangedDefinition, match=r"\(keep, new changed\).* or --accept-change"):
        guard(tmp_path, now)
    guard(tmp_path, now, accept_change=True)

    guard(tmp_path, now)


def test_a_definition_can_be_mended_until_something_is_begun(tmp_path: Path) -> None:
    guard(tmp_path, MINE)
    guard(tmp_path, MINE)
    (tmp_path / "spark.log").touch()
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)  # by a query that did not find its topic

    guard(tmp_path, changed(rows={"source": "topic walls", "steps": ()}))


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()

    with pytest.raises(ChangedDefinition, match="a checkpoint of something else"):
        guard(tmp_path, MINE)


def test_one_run_works_in_a_folder(tmp_path: Path) -> None:
    with locked(tmp_path / "work"), pytest.raises(Busy, match="another run works in"), locked(tmp_path / "work"):
        pass

    with locked(tmp_path / "work"):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(WrongTable, match="file/work: Not a directory"), locked(tmp_path / "file" / "work"):
        pass


def test_where_a_run_got_to_is_remembered(tmp_path: Path) -> None:
    assert read_standing(tmp_path) is None
    standing = Standing(batch=3, time="2024-03-05T10:20:30Z", messages=7, lag=2)

    write(tmp_path / "progress.json", standing)

    assert read_standing(tmp_path) == standing


def test_a_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "definition.json").write_text("{")

    with pytest.raises(ChangedDefinition, match=r"definition\.json cannot be read"):
        guard(tmp_path, MINE)
