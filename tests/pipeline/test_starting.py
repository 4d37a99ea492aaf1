"""What a run that is told to end says when Spark is gone before it."""

import threading
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from ams.cli.exits import Exit, exit_code
from ams.pipeline.errors import Failed, Interrupted
from ams.pipeline.starting import ends_told


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


@pytest.mark.parametrize(
    ("reason", "kind", "text"),
    [
        ("Master removed our application: KILLED", Interrupted, "plants was ended by Spark's master: Master removed"),
        ("Master removed our application: FAILED", Failed, "Spark gave up: Master removed our application: FAILED"),
        ("All masters are unresponsive! Giving up.", Failed, "Spark gave up: All masters are unresponsive!"),
    ],
)
def test_why_a_master_ended_a_run_is_told(tmp_path: Path, reason: str, kind: type[Exception], text: str) -> None:
    line = f"26/11/23 ERROR Backend: Application has been killed. Reason: {reason}"
    (tmp_path / "log").write_text(f"one\n{line}\n\tat a\n")

    with pytest.raises(kind, match=text), ends_told("plants", threading.Event(), tmp_path / "log"):
        raise Py4JNetworkError("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext")


def test_what_fails_while_nobody_ended_anything_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(Py4JNetworkError), ends_told("plants", threading.Event(), tmp_path / "absent"):
        raise Py4JNetworkError("gone")
