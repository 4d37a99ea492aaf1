"""`ams pipeline run` as a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.pipeline.checkpoint import SPARK_LOG, read_standing
from tests.pipeline.garden import Garden, numbered
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long]

SECONDS = 240
"""A start of Spark, on a busy machine."""
DEFINITION = """\
source: {topic: plants}
steps: [{derive: {text: cast(data as string)}}]
sink: {table: plants}
"""


@contextlib.contextmanager
def running(garden: Garden, folder: Path, *flags: str, group: bool = False) -> Iterator["subprocess.Popen[str]"]:
    """Run the definition in `w`, with a process group of its own or in that of this process."""
    (folder / "plants.yaml").write_text(DEFINITION)

    command = [sys.executable, "-m", "ams.cli.main", "pipeline", "run", "plants.yaml", "--work", "w", *flags]
    with subprocess.Popen(
        command, cwd=folder, env=garden.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=group,
    ) as run:  # fmt: skip
        try:
            yield run
        finally:
            run.kill()


def test_a_spark_that_does_not_start_is_told_in_one_line(garden: Garden, tmp_path: Path) -> None:
    with running(garden, tmp_path, "--memory", "much") as run:
        _, err = run.communicate(timeout=SECONDS)

    assert (run.returncode, err) == (1, f"ams: Spark did not start; {tmp_path}/w/spark.log says why\n")
    assert "much" in (tmp_path / "w" / "spark.log").read_text()


def test_sigterm_for_the_whole_process_group_is_an_interruption_and_no_fault(garden: Garden, tmp_path: Path) -> None:
    """As `timeout` and systemd send it: Java gets it too, here while it starts."""
    with running(garden, tmp_path, "--every", "1s", group=True) as run:
        wait_until((tmp_path / "w" / SPARK_LOG).exists, SECONDS, process=run)
        os.killpg(run.pid, signal.SIGTERM)
        out, err = run.communicate(timeout=SECONDS)

    assert (run.returncode, out) == (130, "")
    assert err == (
        "ams: plants was ended together with its Spark: what is done stays done, the next run goes on behind it\n"
    )


def test_sigterm_ends_a_run_that_goes_on_with_one_line_and_the_token_is_nowhere(garden: Garden, tmp_path: Path) -> None:
    garden.topic("plants", numbered(3))
    with running(garden, tmp_path, "--every", "1s") as run:
        wait_until(lambda: read_standing(tmp_path / "w"), SECONDS, process=run)
        run.send_signal(signal.SIGTERM)
        out, err = run.communicate(timeout=SECONDS)

    assert run.returncode == 0, err
    assert out.startswith("plants: messages 3 records 3 broken 0 batches 1 seconds ")
    assert err.splitlines()[-1] == "SIGTERM: ending after the batch at work; once more ends at once"
    assert len(err.splitlines()) < 5
    kept = [file.read_bytes() for file in (tmp_path / "w").rglob("*") if file.is_file()]
    assert kept
    assert garden.served.token.encode() not in b"".join([*kept, out.encode(), err.encode()])
