import pickle

import pytest
from pyspark.errors import StreamingQueryException

from ams.client import errors as client
from ams.pipeline import errors
from ams.pipeline.failures import explained
from ams.tables.errors import WrongTable

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


@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        ("ams.client.errors.NotFound: Topic doesn't exist", client.NotFound, "Topic doesn't exist"),
        ("ams.client.errors.Unreachable: cannot reach https://a.example", client.Unreachable, "cannot reach https"),
        ("ams.pipeline.errors.DataLoss: messages 0 to 9", errors.DataLoss, "messages 0 to 9"),
        ("ams.tables.errors.WrongTable: has other columns", errors.WrongTable, "has other columns"),
        ("ams.pipeline.errors.WrongOption: option topic: is missing", errors.WrongOption, "option topic: is missing"),
        ("ams.pipeline.errors.Broken: no number", errors.Failed, "could not be read, and was not set aside: no number"),
        ("ValueError: bad day", errors.Failed, "Spark gave up: ValueError: bad day"),
        ("nothing of note", errors.Failed, "Spark gave up: IllegalStateException: something in Java"),
    ],
)
def test_what_a_worker_raised_is_told_in_one_line(line: str, kind: type[Exception], text: str) -> None:
    found = explained(spark(WORKER.format(line)))

    assert type(found) is kind
    assert text in str(found)
    assert "\n" not in str(found)


def test_without_a_cause_the_first_line_is_told_without_its_code() -> None:
    found = explained(spark("[TABLE_OR_VIEW_NOT_FOUND] The table cannot be found. SQLSTATE: 42P01\nmore"))

    assert str(found) == "Spark gave up: The table cannot be found."


def test_what_we_raised_ourselves_stays_what_it_is() -> None:
    outer = RuntimeError("outer")
    outer.__cause__ = errors.WrongTable("other columns")

    assert explained(outer) is outer.__cause__
    outer.__cause__ = WrongTable("another checkpoint")
    assert (type(explained(outer)), str(explained(outer))) == (errors.WrongTable, "another checkpoint")
    fault = ZeroDivisionError("division by zero")
    assert explained(fault) is fault
    assert isinstance(explained(OSError(28, "No space left on device")), errors.Failed)


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(errors.WrongOption("topic", "is missing")))

    assert (error.option, error.reason) == ("topic", "is missing")
