import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.ports import FIRST, LAST, free_port
from cluster.processes import DidNotStart, Process, descendants, runs
from tests.support.documents import ROOT
from tests.support.waiting import PATIENCE_SECONDS, wait_until

FAMILY = ["/bin/sh", "-c", "sleep 600 & echo started; wait"]


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Process]:
    process = Process("family", FAMILY, tmp_path / "log")
    process.start()
    process.wait_said("started", PATIENCE_SECONDS)
    yield process
    process.kill()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_process_is_frozen_and_killed_with_its_children_and_its_log_goes_on(family: Process) -> None:
    pids = [family.pid, *descendants(family.pid)]
    assert len(pids) == 2

    family.freeze()
    assert [state(pid) for pid in pids] == ["T", "T"]
    family.thaw()
    wait_until(lambda: "T" not in [state(pid) for pid in pids])
    family.kill()
    wait_until(lambda: not any(map(runs, pids)))
    family.start()
    family.wait_said("started", PATIENCE_SECONDS)

    assert family.log.read_text() == "started\nstarted\n"


def test_a_process_that_ends_early_is_told_with_its_last_lines(tmp_path: Path) -> None:
    process = Process("broken", ["/bin/sh", "-c", "echo no memory; exit 3"], tmp_path / "log")
    process.start()

    with pytest.raises(DidNotStart, match=r"broken ended before it was ready:\nno memory"):
        process.wait_said("ready", PATIENCE_SECONDS)
    assert process.stop() == 3


def test_nothing_outlives_a_starter_that_is_killed(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from cluster.processes import Process
process = Process("family", {FAMILY}, Path({str(tmp_path / "log")!r}))
process.start()
process.wait_said("started", 60)
print(process.pid, flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        pids = [pid, *descendants(pid)]
        starter.send_signal(signal.SIGKILL)

    assert len(pids) == 2
    wait_until(lambda: not any(map(runs, pids)))


def test_ports_differ_and_are_another_process_s_only_when_this_one_is_gone() -> None:
    ports = [free_port() for _ in range(50)]
    take = f"import cluster.ports as p; p.FIRST = p.LAST = {ports[0]}; print(p.free_port())"

    assert len(set(ports)) == 50
    assert all(FIRST <= port <= LAST for port in ports)
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
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True, cwd=ROOT) as program:
        assert program.stdout is not None
        for line in ("ready\n", "tidying\n"):
            assert program.stdout.readline() == line
            program.terminate()
        assert program.stdout.read() == "tidy\n"

    assert program.returncode == 0
