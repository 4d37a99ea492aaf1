"""What a run that is told to end says when Spark is gone before it."""

import threading
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from ams.cli.exits import Exit, exit_code
from ams.pipeline.errors import Failed, Interrupted
from ams.pipeline.starting import interrupted_if, removal_told


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionRefusedError(), Failed("Spark did not start")])
def test_what_fails_after_a_run_was_told_to_end_is_an_interruption(error: Exception) -> None:
    stopping = threading.Event()
    stopping.set()

    with pytest.raises(Interrupted, match="plants was ended together with its Spark") as raised, \
            interrupted_if(stopping, "plants"):  # fmt: skip
        raise error

    assert exit_code(raised.value) is Exit.INTERRUPTED


@pytest.mark.parametrize(
    ("reason", "kind", "text"),
    [
        ("Master removed our application: KILLED", Interrupted, "plants was ended by Spark's master: Master removed"),
        ("Master removed our application: FAILED", Failed, "Spark gave up: Master removed our application: FAILED"),
        ("All masters are unresponsive! Giving up.", Failed, "Spark gave up: All masters are unresponsive!"),
    ],
)
def test_why_a_master_ended_an_application_is_told(
    tmp_path: Path, reason: str, kind: type[Exception], text: str
) -> None:
    (tmp_path / "log").write_text(
        f"one\n26/11/23 ERROR Backend: Application has been killed. Reason: {reason}\n\tat a\n"
    )

    with pytest.raises(kind, match=text), removal_told(tmp_path / "log", "plants"):
        raise Py4JNetworkError("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext")


def test_what_fails_while_an_application_is_at_work_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(Py4JNetworkError), removal_told(tmp_path / "absent", "plants"):
        raise Py4JNetworkError("gone")


def test_what_fails_before_it_was_told_to_end_stays_what_it_is() -> None:
    with pytest.raises(Py4JNetworkError), interrupted_if(threading.Event(), "plants"):
        raise Py4JNetworkError("gone")
