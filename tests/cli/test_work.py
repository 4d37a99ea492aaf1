"""`ams work`: real programs handle messages of a real service."""

import json
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ams.cli.work import environment_of, variable
from ams.client import ReceivedMessage
from tests.cli.conftest import Ams, AmsProcess, StartAms
from tests.support.waiting import PATIENCE_SECONDS, wait_until

EMPTY = "--exit-when-empty"
Backlog = Callable[[], int]


@pytest.fixture
def jobs(ams: Ams, project: str) -> str:
    assert ams("topics", "create", "t").returncode == 0
    ran = ams("subs", "create", "jobs", "t", "--type", "parallel")
    assert ran.returncode == 0, ran.stderr
    return "jobs"


@pytest.fixture
def backlog(ams: Ams, jobs: str) -> Backlog:
    def ask() -> int:
        offsets = ams.json("subs", "offsets", jobs)
        return int(offsets["max"] - offsets["current"])

    return ask


@pytest.fixture
def start_worker(start_ams: StartAms) -> StartAms:
    def start(*arguments: str) -> "subprocess.Popen[str]":
        process = start_ams("work", *arguments)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("working on")
        return process

    return start


def test_a_program_gets_all_that_a_message_has(ams: Ams, ams_process: AmsProcess, jobs: str, backlog: Backlog) -> None:
    ams("publish", "t", "--data", "dry", "--attr", "bed=roses", "--attr", "soil.pH=6,5", "--ordering-key", "north")
    attributes = "$AMS_ATTRIBUTE_BED $AMS_ATTRIBUTE_SOIL_PH$AMS_ATTRIBUTE_OLD"
    script = f'cat; echo " {attributes} $AMS_ORDERING_KEY $AMS_MESSAGE_ID"; echo "$AMS_PUBLISH_TIME"'

    ran = ams_process("work", jobs, EMPTY, "--", "sh", "-c", script, AMS_ATTRIBUTE_OLD="1")

    assert ran.returncode == 0, ran.stderr
    shown, published, _ = ran.stdout.split("\n")
    assert shown == "dry roses 6,5 north 0"
    assert datetime.fromisoformat(published).tzinfo is not None
    assert ran.stderr == "working on jobs, 1 at a time; Ctrl-C ends\nworked 1, failed 0, late 0, given back 0\n"
    assert backlog() == 0


@pytest.mark.long
def test_data_comes_as_it_is_and_need_not_be_read(ams: Ams, ams_process: AmsProcess, tmp_path: Path, jobs: str) -> None:
    (tmp_path / "big").write_bytes(bytes(range(256)) * 4000)
    ams("publish", "t", "--file", "big")
    ams("publish", "t", "--file", "big")

    ran = ams_process("work", jobs, EMPTY, "--", "sh", "-c", '[ "$AMS_MESSAGE_ID" = 1 ] || cmp - big')

    assert "worked 2, failed 0" in ran.stderr, ran.stderr


def test_the_exit_code_decides(ams: Ams, ams_process: AmsProcess, tmp_path: Path, jobs: str, backlog: Backlog) -> None:
    for data in ("0", "1", "75", "kill"):
        ams("publish", "t", "--data", data)
    script = 'read it; if mkdir "$AMS_MESSAGE_ID" 2>&-; then [ $it = kill ] && kill -9 $$; exit $it; fi'

    ran = ams_process("work", jobs, "--max-messages", "7", "--retry-after", "1s", "--", "sh", "-c", script)

    assert ran.returncode == 0
    assert ran.stderr.splitlines()[-1] == "worked 4, failed 3, late 0, given back 0"
    assert set(ran.stderr.splitlines()[1:-1]) == {
        "message 1: exit code 1", "message 2: exit code 75, again in 1 seconds", "message 3: ended by signal 9",
    }  # fmt: skip
    assert backlog() == 0


@pytest.mark.long
def test_a_slow_program_is_killed_with_children(ams: Ams, ams_process: AmsProcess, tmp_path: Path, jobs: str) -> None:
    ams("publish", "t", "--data", "x")
    script = "sh -c 'echo $$ >child; exec sleep 600' & sleep 600"

    ran = ams_process("work", jobs, "--time-limit", "2s", "--max-messages", "1", "--", "sh", "-c", script)

    assert ran.stderr.splitlines()[1:] == [
        "message 0: killed after 2 seconds", "message 0: ended by signal 9", "worked 0, failed 1, late 0, given back 0",
    ]  # fmt: skip
    child = Path("/proc", (tmp_path / "child").read_text().strip())
    wait_until(lambda: not child.exists())


@pytest.mark.long
def test_several_programs_run_at_a_time(ams: Ams, ams_process: AmsProcess, tmp_path: Path, jobs: str) -> None:
    """Each waits for the other one."""
    ams("publish", "t", "--data", "0")
    ams("publish", "t", "--data", "1")
    script = 'touch "here-$AMS_MESSAGE_ID"; until [ -e here-0 ] && [ -e here-1 ]; do sleep 0.05; done'

    ran = ams_process("work", jobs, EMPTY, "--concurrency", "2", "-o", "json", "--", "sh", "-c", script)

    assert json.loads(ran.stdout) == {"worked": 2, "failed": 0, "late": 0, "given_back": 0}, ran.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(ams: Ams, start_worker: StartAms, tmp_path: Path, jobs: str, number: signal.Signals) -> None:
    for data in ("0", "1", "2"):
        ams("publish", "t", "--data", data)
    process = start_worker(jobs, "--", "sh", "-c", "touch begun; sleep 1; touch ended")
    wait_until((tmp_path / "begun").exists, process=process)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 0
    assert said.splitlines()[-1].startswith("worked 1, failed 0")
    assert (tmp_path / "ended").exists()


@pytest.mark.long
def test_a_slow_program_is_killed(ams: Ams, ams_process: AmsProcess, start_worker: StartAms, tmp_path: Path, jobs: str):
    ams("publish", "t", "--data", "x")
    process = start_worker(jobs, "--grace", "100ms", "--", "sh", "-c", "touch begun; sleep 60; touch ended")
    wait_until((tmp_path / "begun").exists, process=process)
    process.terminate()
    _, said = process.communicate(timeout=PATIENCE_SECONDS)

    assert said.splitlines()[-1] == "worked 0, failed 0, late 0, given back 1"
    again = ams_process("work", jobs, EMPTY, "--", "cat")
    assert (again.stdout, (tmp_path / "ended").exists()) == ("x", False)


def test_a_program_that_is_not_there_is_refused(ams: Ams, ams_process: AmsProcess, tmp_path: Path, jobs: str) -> None:
    ams("publish", "t", "--data", "x")
    (tmp_path / "not-a-program").write_bytes(b"\x7fELF")
    (tmp_path / "not-a-program").chmod(0o755)
    broken = ams_process("work", jobs, "--max-messages", "1", "--", "./not-a-program")
    assert "message 0: ./not-a-program: Exec format error" in broken.stderr
    assert "failed 1" in broken.stderr


def test_variables_of_attributes_have_safe_names_and_the_first_of_one_name_is_taken() -> None:
    names = {"bed": "BED", "soil.pH-2": "SOIL_PH_2", "größe=": "GR__E_", "PATH": "PATH"}
    assert {each: variable(each) for each in names} == {each: f"AMS_ATTRIBUTE_{name}" for each, name in names.items()}
    message = ReceivedMessage(
        attributes={"a_b": "third", "a.b": "second", "a-b": "first\0"},
        id="7", publish_time=datetime(2024, 3, 5, tzinfo=UTC), ack_id="", delivery_attempt=3,
    )  # fmt: skip

    found = environment_of(message, {"AMS_ATTRIBUTE_LEFT": "1", "AMS_PROJECT": "garden", "AMS_MESSAGE_ID": "6"})

    assert found == {
        b"AMS_PROJECT": b"garden", b"AMS_ATTRIBUTE_A_B": b"first", b"AMS_MESSAGE_ID": b"7",
        b"AMS_PUBLISH_TIME": b"2024-03-05T00:00:00Z", b"AMS_ORDERING_KEY": b"", b"AMS_DELIVERY_ATTEMPT": b"3",
    }  # fmt: skip
