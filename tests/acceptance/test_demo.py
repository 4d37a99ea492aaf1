import contextlib
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import environment
from tests.support.service import live_service

pytestmark = pytest.mark.acceptance

LAST_LINE = re.compile(r"demo: published (\d+) received (\d+) acknowledged (\d+) lost 0 duplicated 0 seconds \d+\.\d")
SMALL = ("--messages", "600")
NO_JAVA = {"JAVA_HOME": "/nowhere"}
LEFT_OUT = "Who used how much is computed on Spark, which needs Java 17 or newer; left out.\n"


def demo(folder: Path, *flags: str, seconds: float = 100, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the demo, without the job on Spark unless `JAVA_HOME` is said."""
    command = [sys.executable, "-m", "demo", "--port", "0", *flags]
    settings = environment(**{**NO_JAVA, **variables})
    return subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, timeout=seconds, check=False
    )


def processes_in(folder: Path) -> list[str]:
    """Return the processes whose working folder is `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.mark.long
def test_thousands_of_messages_come_out_as_they_went_in_and_a_second_run_works_on_the_old_data(tmp_path: Path) -> None:
    first = demo(tmp_path)
    second = demo(tmp_path, *SMALL)

    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    counts = LAST_LINE.fullmatch(first.stdout.splitlines()[-1])
    assert counts is not None, first.stdout
    assert len(set(counts.groups())) == 1
    assert int(counts[1]) >= 5000
    assert LAST_LINE.fullmatch(second.stdout.splitlines()[-1])
    assert first.stderr == second.stderr == ""
    assert LEFT_OUT in first.stdout


@pytest.mark.long
@pytest.mark.spark
def test_where_java_is_found_it_ends_with_a_job_on_spark_that_leaves_the_folders_of_others_alone(
    tmp_path: Path,
) -> None:
    ran = demo(tmp_path, *SMALL, seconds=300, JAVA_HOME="")

    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^demo +metric_data +500 ", ran.stdout, re.MULTILINE), ran.stdout
    assert "\nmetrics: messages 600 records 0 broken 0 " in ran.stdout
    assert [folder.name for folder in (tmp_path / "ams-pipeline").iterdir()] == ["demo"]


def test_a_java_that_is_too_old_for_spark_is_no_failure(tmp_path: Path) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)

    ran = demo(tmp_path, *SMALL, JAVA_HOME=str(tmp_path / "jdk"))

    assert ran.returncode == 0
    assert LEFT_OUT in ran.stdout


def test_one_altered_message_fails_the_demo_by_name(tmp_path: Path) -> None:
    altered = demo(tmp_path, *SMALL, "--alter", "metric_data:123")

    assert altered.returncode == 1
    assert altered.stderr == "metric_data message 123: altered, byte 0 was 0x28 and came out as 0x29\n"
    assert altered.stdout.splitlines()[-1].startswith("demo: failed: published 600 received 600")


def test_a_proxy_in_the_environment_is_passed_by(tmp_path: Path) -> None:
    nobody_there = "http://127.0.0.1:9"

    assert demo(tmp_path, *SMALL, https_proxy=nobody_there, HTTPS_PROXY=nobody_there).returncode == 0


def test_a_busy_port_ends_it_with_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = demo(tmp_path, "--port", str(taken.getsockname()[1]))

    assert refused.returncode == 1
    assert refused.stdout == ""
    assert len(refused.stderr.splitlines()) == 1
    assert "port" in refused.stderr


def test_a_folder_in_use_ends_it_with_one_line(tmp_path: Path) -> None:
    with live_service(tmp_path / "ams-data"):
        refused = demo(tmp_path)

    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    assert "in use" in refused.stderr


def test_a_foreign_folder_ends_it_with_one_line_and_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-a-friend.txt").write_text("hello")

    refused = demo(tmp_path, "--data", "letters")

    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    assert "--data" in refused.stderr
    assert [path.name for path in (tmp_path / "letters").iterdir()] == ["to-a-friend.txt"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_in_the_middle_leaves_no_traceback_and_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "demo", "--port", "0", "--messages", "60000"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("published"):
                break
        process.send_signal(number)
        ending, _ = process.communicate(timeout=30)

    assert process.returncode == 130
    assert "Stopped; the data stay in ams-data." in ending
    assert "Traceback" not in ending
    assert processes_in(tmp_path) == []
