import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.storage.audit.event import moment, read, written
from ams.storage.audit.trail import LineFile, events_in, portions_from_the_end
from tests.storage.audit.events import NOON, event

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=20, deadline=None)
@given(actor=TEXT, resource=TEXT, reason=TEXT, at=st.integers(-(10**9), 10**9), times=st.integers(1, 10**6))
def test_what_is_written_is_one_line_and_read_back(actor: str, resource: str, reason: str, at: int, times: int) -> None:
    one = event(at, actor=actor, resource=resource, reason=reason, times=times)

    assert read(written(one)) == one
    assert written(one).count(b"\n") == 1


def test_times_are_those_of_rfc_3339() -> None:
    assert b'"time":"2023-11-14T22:13:20.005Z"' in written(event(5))
    assert moment("2023-11-14T22:13:20.005Z") == moment("2023-11-14T23:13:20.005+01:00") == NOON + 5
    assert moment("2023-11-14") == moment("2023-11-14T00:00:00") == moment("2023-11-14T00:00:00Z")


def test_the_file_is_for_the_owner_only(path: str) -> None:
    LineFile(path).append(event())

    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_after_a_torn_line_the_next_one_is_whole(path: str) -> None:
    first, second = event(), event()
    Path(path).write_bytes(written(first) + written(event())[:40])

    LineFile(path).append(second)

    assert list(events_in(path)) == [first, second]


@pytest.mark.parametrize(
    "said",
    [
        {"code": 10**12}, {"code": -1}, {"times": 2**31}, {"times": 0}, {"id": "x" * 37},
        {"time": "yesterday"},
    ],
)  # fmt: skip
def test_a_line_that_somebody_else_wrote_and_no_table_takes_is_passed_by(path: str, said: dict[str, object]) -> None:
    """One of them would keep all that follow it out of the table."""
    one = event()
    Path(path).write_bytes(json.dumps(json.loads(written(one)) | said).encode() + b"\n" + written(one))

    assert list(events_in(path)) == [one]


def test_a_file_that_is_renamed_or_removed_is_left_to_itself(path: str) -> None:
    lines, events = LineFile(path), [event() for _ in range(4)]
    lines.append(events[0])
    os.rename(path, path + ".1")
    lines.append(events[1])
    os.unlink(path)
    lines.append(events[2])
    lines.append(events[3])

    assert list(events_in(path + ".1")) == events[:1]
    assert list(events_in(path)) == events[2:]
    seen = []
    while found := lines.unread():
        seen += found
        lines.have_read()
    assert seen == events


def test_what_was_not_taken_is_offered_again(path: str) -> None:
    lines, one = LineFile(path), event()
    lines.append(one)

    assert lines.unread() == lines.unread() == [one]
    lines.have_read()
    assert lines.unread() == []


@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(0, 40_000), max_size=8))
def test_portions_from_the_end_are_all_events(tmp_path_factory: pytest.TempPathFactory, lengths: list[int]) -> None:
    path = str(tmp_path_factory.mktemp("audit") / "audit.jsonl")
    lines, events = LineFile(path), [event(reason="x" * length) for length in lengths]
    for each in events:
        lines.append(each)
    lines.close()

    portions = list(portions_from_the_end(path))

    assert [each for _, portion in reversed(portions) for each in portion] == events
    assert [begin for begin, _ in portions][-1:] == [0][: len(portions)]
