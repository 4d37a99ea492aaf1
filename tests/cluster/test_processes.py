import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.ports import FIRST, LAST, free_port
from cluster.processes import DidNotStart, Process, descendants

ROOT = Path(__file__).parents[2]

FAMILY = ["/bin/sh", "-c", "sleep 600 & echo started; wait"]


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Process]:
    process = Process("family", FAMILY, tmp_path / "log")
    process.start()
    process.wait_said("started", 5)
    yield process
    process.kill()


def gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def eventually(true: Callable[[], bool]) -> bool:
    give_up = time.monotonic() + 5
    while not true() and time.monotonic() < give_up:
        time.sleep(0.01)
    return true()


def test_a_kill_ends_children_too(family: Process) -> None:
    pids = [family.pid, *descendants(family.pid)]

    family.kill()

    assert len(pids) == 2
    assert all(map(gone, pids))
    assert not family.alive


def test_a_frozen_process_stands_still_with_its_children_and_goes_on(family: Process) -> None:
    pids = [family.pid, *descendants(family.pid)]

    family.freeze()
    assert [state(pid) for pid in pids] == ["T", "T"]
    family.thaw()
    assert eventually(lambda: [state(pid) for pid in pids] == ["S", "S"])


def test_a_killed_process_can_be_started_again_and_its_log_goes_on(family: Process) -> None:
    family.kill()
    family.start()
    family.wait_said("started", 5)

    assert family.log.read_text() == "started\nstarted\n"


def test_a_process_that_ends_early_is_told_with_its_last_lines(tmp_path: Path) -> None:
    process = Process("broken", ["/bin/sh", "-c", "echo no memory; exit 3"], tmp_path / "log")
    process.start()

    with pytest.raises(DidNotStart, match=r"broken ended before it was ready:\nno memory"):
        process.wait_said("ready", 5)
    assert process.stop() == 3


def test_a_process_asked_to_stop_may_tidy_up(tmp_path: Path) -> None:
    tidy = 'trap "exit 7" TERM; echo ready; while :; do sleep 0.01; done'
    process = Process("tidy", ["/bin/sh", "-c", tidy], tmp_path / "log")
    process.start()
    process.wait_said("ready", 5)

    assert process.stop() == 7


def test_nothing_outlives_a_starter_that_is_killed(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from cluster.processes import Process
process = Process("family", {FAMILY}, Path({str(tmp_path / "log")!r}))
process.start()
process.wait_said("started", 5)
print(process.pid, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=os.getcwd()
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        pids = [pid, *descendants(pid)]
        starter.send_signal(signal.SIGKILL)

    assert len(pids) == 2
    assert eventually(lambda: all(map(gone, pids)))


def test_ports_differ_and_lie_below_those_of_clients() -> None:
    ports = [free_port() for _ in range(50)]

    assert len(set(ports)) == 50
    assert all(FIRST <= port <= LAST for port in ports)


def test_a_port_is_another_process_s_only_when_this_one_is_gone() -> None:
    port = free_port()
    take = f"import cluster.ports as p; p.FIRST = p.LAST = {port}; print(p.free_port())"

    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", take], cwd=ROOT, timeout=1, capture_output=True)


INTERRUPTED = """
import signal, time
from cluster.processes import treat_as_ctrl_c

treat_as_ctrl_c()
try:
    print("ready", flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("tidying", flush=True)
    time.sleep(0.3)
    print("tidy", flush=True)
"""


def test_an_impatient_second_interruption_does_not_break_off_the_tidying_up() -> None:
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.terminate()
        assert program.stdout.readline() == "tidying\n"
        program.terminate()
        assert program.stdout.read() == "tidy\n"

    assert program.returncode == 0
