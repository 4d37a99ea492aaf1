"""What a run that is told to end says when Spark is gone before it."""

import threading

import pytest
from py4j.protocol import Py4JNetworkError

from ams.cli.exits import Exit, exit_code
from ams.pipeline.errors import Failed, Interrupted
from ams.pipeline.starting import interrupted_if


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionRefusedError(), Failed("Spark did not start")])
def test_what_fails_after_a_run_was_told_to_end_is_an_interruption(error: Exception) -> None:
    stopping = threading.Event()
    stopping.set()

    with pytest.raises(Interrupted, match="plants was ended together with its Spark") as raised, \
            interrupted_if(stopping, "plants"):  # fmt: skip
        raise error

    assert exit_code(raised.value) is Exit.INTERRUPTED


def test_what_fails_before_it_was_told_to_end_stays_what_it_is() -> None:
    with pytest.raises(Py4JNetworkError), interrupted_if(threading.Event(), "plants"):
        raise Py4JNetworkError("gone")
