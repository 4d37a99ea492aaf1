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

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

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


def test_thousands_of_messages_come_out_as_they_went_in_and_a_second_run_works_on_the_old_data(tmp_path: Path) -> None:
    first = demo(tmp_path)
    nobody_there = "http://127.0.0.1:9"
    second = demo(tmp_path, *SMALL, https_proxy=nobody_there, HTTPS_PROXY=nobody_there)  # it is passed by

    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    counts = LAST_LINE.fullmatch(first.stdout.splitlines()[-1])
    assert counts is not None, first.stdout
    assert len(set(counts.groups())) == 1
    assert int(counts[1]) >= 5000
    assert LAST_LINE.fullmatch(second.stdout.splitlines()[-1])
    assert first.stderr == second.stderr == ""
    assert LEFT_OUT in first.stdout


def test_one_altered_message_fails_the_demo_by_name(tmp_path: Path) -> None:
    altered = demo(tmp_path, *SMALL, "--alter", "metric_data:123")

    assert altered.returncode == 1
    assert altered.stderr == "metric_data message 123: altered, byte 0 was 0x28 and came out as 0x29\n"


@pytest.mark.spark
def test_where_java_is_found_it_ends_with_a_job_on_spark_that_leaves_the_folders_of_others_alone(
    tmp_path: Path,
) -> None:
    ran = demo(tmp_path, *SMALL, seconds=300, JAVA_HOME="")

    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^demo +metric_data +500 ", ran.stdout, re.MULTILINE), ran.stdout
    assert "\nmetrics: messages 600 records 0 broken 0 " in ran.stdout
    assert [folder.name for folder in (tmp_path / "ams-pipeline").iterdir()] == ["demo"]


@pytest.mark.parametrize(("refused", "word"), [("port", "port"), ("used", "in use"), ("foreign", "--data")])
def test_what_it_cannot_use_ends_it_with_one_line(refused: str, word: str, tmp_path: Path) -> None:
    letter = tmp_path / "letters" / "to-a-friend.txt"
    letter.parent.mkdir()
    letter.write_text("hello")
    with contextlib.ExitStack() as stack:
        flags = {"foreign": ["--data", "letters"]}.get(refused, [])
        if refused == "port":
            taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            flags = ["--port", str(taken.getsockname()[1])]
        if refused == "used":
            stack.enter_context(live_service(tmp_path / "ams-data"))
        ended = demo(tmp_path, *flags)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert len(ended.stderr.splitlines()) == 1
    assert word in ended.stderr
    assert list(letter.parent.iterdir()) == [letter]


def test_an_interruption_in_the_middle_leaves_no_traceback_and_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo", "--port", "0", "--messages", "60000"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("published"):
                break
        process.send_signal(signal.SIGINT)
        ending, _ = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "Stopped; the data stay in ams-data." in ending
    assert "Traceback" not in ending
    assert processes_in(tmp_path) == []
