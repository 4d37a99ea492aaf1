import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import environment

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

LAST_LINE = re.compile(r"demo: published (\d+) received \1 acknowledged \1 lost 0 duplicated 0 seconds \d+\.\d")
SMALL = ("--messages", "600")


def demo(folder: Path, *flags: str, seconds: float = 100, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the demo, without the job on Spark unless `JAVA_HOME` is said."""
    command = [sys.executable, "-m", "demo", "--port", "0", *flags]
    settings = environment(**{"JAVA_HOME": "/nowhere", **variables})
    return subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, timeout=seconds, check=False
    )


def test_thousands_of_messages_come_out_as_they_went_in_and_a_second_run_works_on_the_old_data(tmp_path: Path) -> None:
    nobody_there = "http://127.0.0.1:9"  # is passed by
    first = demo(tmp_path)
    second = demo(tmp_path, *SMALL, https_proxy=nobody_there, HTTPS_PROXY=nobody_there)
    for ran, least in ((first, 5000), (second, 600)):
        assert (ran.returncode, ran.stderr) == (0, "")
        counts = LAST_LINE.fullmatch(ran.stdout.splitlines()[-1])
        assert counts is not None, ran.stdout
        assert int(counts[1]) >= least


def test_one_altered_message_fails_the_demo_by_name(tmp_path: Path) -> None:
    altered = demo(tmp_path, *SMALL, "--alter", "metric_data:123")
    assert altered.returncode == 1
    assert altered.stderr.startswith("metric_data message 123: altered")


@pytest.mark.spark
def test_where_java_is_found_it_ends_with_a_job_on_spark_that_leaves_other_folders_alone(tmp_path: Path) -> None:
    ran = demo(tmp_path, *SMALL, seconds=300, JAVA_HOME="")
    assert ran.returncode == 0, ran.stderr
    assert "\nmetrics: messages 600 records 0 broken 0 " in ran.stdout
    assert [folder.name for folder in (tmp_path / "ams-pipeline").iterdir()] == ["demo"]


def test_a_folder_with_files_of_others_is_refused_and_left_alone(tmp_path: Path) -> None:
    letter = tmp_path / "letters" / "to-a-friend.txt"
    letter.parent.mkdir()
    letter.write_text("hello")

    assert demo(tmp_path, "--data", "letters").returncode == 1
    assert list(letter.parent.iterdir()) == [letter]
