"""`ams pipeline run` as a process of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ams.pipeline.checkpoint import SPARK_LOG, read_standing
from tests.pipeline.garden import Garden, numbered

pytestmark = pytest.mark.spark

SECONDS = 240
"""A start of Spark, on a busy machine."""
DEFINITION = """\
source: {topic: plants}
steps: [{derive: {text: cast(data as string)}}]
sink: {table: plants}
"""


def environment(garden: Garden) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("AMS_")}
    return own | {
        "AMS_ENDPOINT": garden.served.run.base_url,
        "AMS_TOKEN": garden.served.token,
        "AMS_PROJECT": garden.name,
    }


def test_a_spark_that_does_not_start_is_told_in_one_line(garden: Garden, tmp_path: Path) -> None:
    (tmp_path / "plants.yaml").write_text(DEFINITION)
    command = [sys.executable, "-m", "ams.cli.main", "pipeline", "run", "plants.yaml", "--work", "w"]

    run = subprocess.run(
        [*command, "--memory", "much"],
        cwd=tmp_path,
        env=environment(garden),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert (run.returncode, run.stderr) == (1, f"ams: Spark did not start; {tmp_path}/w/spark.log says why\n")
    assert "much" in (tmp_path / "w" / "spark.log").read_text()


def test_sigterm_for_the_whole_process_group_is_an_interruption_and_no_fault(garden: Garden, tmp_path: Path) -> None:
    """As `timeout` and systemd send it: Java gets it too, here while it starts."""
    (tmp_path / "plants.yaml").write_text(DEFINITION)
    command = [sys.executable, "-m", "ams.cli.main", "pipeline", "run", "plants.yaml", "--every", "1s", "--work", "w"]

    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(garden),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            until = time.monotonic() + SECONDS
            while not (tmp_path / "w" / SPARK_LOG).exists() and run.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
            os.killpg(run.pid, signal.SIGTERM)
            out, err = run.communicate(timeout=SECONDS)
        finally:
            run.kill()

    assert (run.returncode, out) == (130, "")
    assert err == (
        "ams: plants was ended together with its Spark: what is done stays done, the next run goes on behind it\n"
    )


@pytest.mark.long
def test_sigterm_ends_a_run_that_goes_on_with_one_line_and_the_token_is_nowhere(garden: Garden, tmp_path: Path) -> None:
    garden.topic("plants", numbered(3))
    (tmp_path / "plants.yaml").write_text(DEFINITION)
    command = [sys.executable, "-m", "ams.cli.main", "pipeline", "run", "plants.yaml", "--every", "1s", "--work", "w"]

    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(garden),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        try:
            until = time.monotonic() + SECONDS
            while read_standing(tmp_path / "w") is None and run.poll() is None and time.monotonic() < until:
                time.sleep(0.2)
            run.send_signal(signal.SIGTERM)
            out, err = run.communicate(timeout=SECONDS)
        finally:
            run.kill()

    assert run.returncode == 0, err
    assert out.startswith("plants: messages 3 records 3 broken 0 batches 1 seconds ")
    assert err.splitlines()[-1] == "SIGTERM: ending after the batch at work; once more ends at once"
    assert len(err.splitlines()) < 5
    kept = [file.read_bytes() for file in (tmp_path / "w").rglob("*") if file.is_file()]
    assert kept
    assert garden.served.token.encode() not in b"".join([*kept, out.encode(), err.encode()])
