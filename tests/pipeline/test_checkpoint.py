import pickle
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException

import ams.tables as tables
from ams.cli.exit_codes import Exit, exit_code
from ams.client import errors as client
from ams.pipeline import errors
from ams.pipeline.checkpoint import Identity, RunPosition, guard, lock_work_folder, read_standing, write
from ams.pipeline.errors import Busy, ChangedJob, Failed, Interrupted, WrongTable
from ams.pipeline.job_run import ends_told
from ams.pipeline.progress import EVERY_SECONDS, BatchProgress
from ams.pipeline.root_cause import root_cause

IDENTITY = Identity(name="walls", project="demo", rows={"source": "topic jobs", "steps": ("a",)}, options={"keep": 3})


def change_identity(**what: object) -> Identity:
    return msgspec.structs.replace(IDENTITY, **what)


def begin_batch(work: Path) -> Path:
    guard(work, IDENTITY)
    (work / "checkpoint" / "offsets").mkdir(parents=True)
    (work / "checkpoint" / "offsets" / "0").touch()
    return work


@pytest.mark.parametrize(("now", "what"), [
    (change_identity(name="other"), "name"),
    (change_identity(project="other"), "project"),
    (change_identity(rows={"source": "topic other", "steps": ("a",)}), "source"),
])  # fmt: skip
def test_another_job_is_refused_whatever_is_accepted(tmp_path: Path, now: Identity, what: str) -> None:
    begin_batch(tmp_path)
    with pytest.raises(ChangedJob, match=rf"another job \({what} changed\): give another folder"):
        guard(tmp_path, now, accept_change=True)
    guard(tmp_path, IDENTITY)


def test_other_options_are_refused_until_they_are_accepted(tmp_path: Path) -> None:
    begin_batch(tmp_path)
    now = change_identity(options={"keep": 4, "new": 1})

    with pytest.raises(ChangedJob, match=r"\(keep, new changed\).* or --accept-change"):
        guard(tmp_path, now)
    guard(tmp_path, now, accept_change=True)

    guard(tmp_path, now)


def test_a_job_can_be_mended_until_something_is_begun(tmp_path: Path) -> None:
    guard(tmp_path, IDENTITY)
    guard(tmp_path, IDENTITY)
    (tmp_path / "spark.log").touch()
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)  # by a query that did not find its topic

    guard(tmp_path, change_identity(rows={"source": "topic walls", "steps": ()}))


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(ChangedJob, match="a checkpoint of something else"):
        guard(tmp_path, IDENTITY)


def test_one_run_works_in_a_folder(tmp_path: Path) -> None:
    with (
        lock_work_folder(tmp_path / "work"), pytest.raises(Busy, match="another run works in"),
        lock_work_folder(tmp_path / "work"),
    ):  # fmt: skip
        pass
    with lock_work_folder(tmp_path / "work"):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WrongTable, match="file/work: Not a directory"), lock_work_folder(tmp_path / "file" / "work"):
        pass


def test_where_a_run_got_to_is_remembered(tmp_path: Path) -> None:
    assert read_standing(tmp_path) is None
    standing = RunPosition(batch=3, time="2024-03-05T10:20:30Z", messages=7, lag=2)
    write(tmp_path / "progress.json", standing)
    assert read_standing(tmp_path) == standing


def test_a_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{")
    with pytest.raises(ChangedJob, match=r"job\.json cannot be read"):
        guard(tmp_path, IDENTITY)


def report(number: int, start: Any, end: Any, latest: Any, rows: int = 0) -> dict[str, Any]:
    source = {"startOffset": start, "endOffset": end, "latestOffset": latest}
    return {"batchId": number, "numInputRows": rows, "processedRowsPerSecond": 5.0, "sources": [source]}


@pytest.mark.parametrize("start", [None, "null"])
def test_messages_are_counted_by_their_offsets(start: str | None) -> None:
    progress = BatchProgress(print)
    progress.begin = {"p/a": 5}

    progress.take([report(0, start, '{"p/a": 10}', '{"p/a": 30}', rows=15)])
    begin = '{"p/a": 10, "topics": {"p/a": "an id"}}'
    progress.take([report(1, begin, '{"p/a": 30, "p/b": 2}', '{"p/a": 30, "p/b": 4}', rows=99)])

    assert (progress.messages, progress.batches, progress.last and progress.last.lag) == (27, 2, 2)


def test_a_batch_is_counted_once_and_an_empty_one_not_at_all() -> None:
    progress = BatchProgress(print)
    first = report(0, '{"p/a": 0}', '{"p/a": 10}', '{"p/a": 10}')

    assert progress.take([first])
    assert not progress.take([first, report(1, '{"p/a": 10}', '{"p/a": 10}', '{"p/a": 10}')])

    assert progress.take([report(1, '{"p/a": 10}', '{"p/a": 11}', '{"p/a": 11}')])
    assert (progress.messages, progress.batches) == (11, 2)


def test_other_sources_are_counted_by_their_rows() -> None:
    progress = BatchProgress(print)

    progress.take([report(0, {"logOffset": 0}, {"logOffset": 1}, None, rows=7)])

    assert progress.messages == 7
    assert progress.last is not None
    assert progress.last.lag is None


def test_progress_is_told_from_time_to_time_with_what_is_left() -> None:
    now, said = [0.0], list[str]()
    progress = BatchProgress(said.append, clock=lambda: now[0])
    progress.take([report(0, '{"p/a": 0}', '{"p/a": 1000}', '{"p/a": 3000}')])
    assert said == []
    now[0] = EVERY_SECONDS

    progress.take([report(1, '{"p/a": 1000}', '{"p/a": 2000}', '{"p/a": 3000}')])

    assert said == ["batch 1, messages 2,000, 400/s, behind 1,000, about 2 s more"]


WORKER = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 0 in stage 1
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    process()
{}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
Caused by: java.lang.IllegalStateException: something in Java
"""


def spark(text: str) -> StreamingQueryException:
    return StreamingQueryException(text)


@pytest.mark.parametrize(("line", "kind", "text"), [
    ("ams.client.errors.NotFound: Topic doesn't exist", client.NotFound, "Topic doesn't exist"),
    ("ams.client.errors.Unreachable: cannot reach https://a.example", client.Unreachable, "cannot reach https"),
    ("ams.pipeline.errors.DataLoss: messages 0 to 9", errors.DataLoss, "messages 0 to 9"),
    ("ams.tables.WrongTable: has other columns", errors.WrongTable, "has other columns"),
    ("ams.pipeline.errors.WrongOption: option topic: is missing", errors.WrongOption, "option topic: is missing"),
    ("ams.pipeline.errors.Broken: no number", errors.Failed, "could not be read, and was not set aside: no number"),
    ("ValueError: bad day", errors.Failed, "Spark gave up: ValueError: bad day"),
    ("nothing of note", errors.Failed, "Spark gave up: IllegalStateException: something in Java"),
])  # fmt: skip
def test_what_a_worker_raised_is_told_in_one_line(line: str, kind: type[Exception], text: str) -> None:
    found = root_cause(spark(WORKER.format(line)))
    assert type(found) is kind
    assert text in str(found)
    assert "\n" not in str(found)


def test_without_a_cause_the_first_line_is_told_without_its_code() -> None:
    found = root_cause(spark("[TABLE_OR_VIEW_NOT_FOUND] The table cannot be found. SQLSTATE: 42P01\nmore"))
    assert str(found) == "Spark gave up: The table cannot be found."


def test_what_we_raised_ourselves_stays_what_it_is() -> None:
    outer = RuntimeError("outer")
    outer.__cause__ = errors.WrongTable("other columns")

    assert root_cause(outer) is outer.__cause__
    outer.__cause__ = tables.WrongTable("another checkpoint")
    assert (type(root_cause(outer)), str(root_cause(outer))) == (errors.WrongTable, "another checkpoint")
    fault = ZeroDivisionError("division by zero")
    assert root_cause(fault) is fault
    assert isinstance(root_cause(OSError(28, "No space left on device")), errors.Failed)


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(errors.WrongOption("topic", "is missing")))
    assert (error.option, error.reason) == ("topic", "is missing")


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionRefusedError(), Failed("Spark did not start")])
def test_what_fails_after_a_run_was_told_to_end_is_an_interruption(error: Exception, tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()

    with (
        pytest.raises(Interrupted, match="plants was ended together with its Spark") as raised,
        ends_told("plants", stopping, tmp_path / "absent"),
    ):
        raise error

    assert exit_code(raised.value) is Exit.INTERRUPTED


@pytest.mark.parametrize(("reason", "kind", "text"), [
    ("Master removed our application: KILLED", Interrupted, "plants was ended by Spark's master: Master removed"),
    ("Master removed our application: FAILED", Failed, "Spark gave up: Master removed our application: FAILED"),
    ("All masters are unresponsive! Giving up.", Failed, "Spark gave up: All masters are unresponsive!"),
])  # fmt: skip
def test_why_a_master_ended_a_run_is_told(tmp_path: Path, reason: str, kind: type[Exception], text: str) -> None:
    line = f"26/11/23 ERROR Backend: Application has been killed. Reason: {reason}"
    (tmp_path / "log").write_text(f"one\n{line}\n\tat a\n")
    with pytest.raises(kind, match=text), ends_told("plants", threading.Event(), tmp_path / "log"):
        raise Py4JNetworkError("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext")


def test_what_fails_while_nobody_ended_anything_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(Py4JNetworkError), ends_told("plants", threading.Event(), tmp_path / "absent"):
        raise Py4JNetworkError("gone")
