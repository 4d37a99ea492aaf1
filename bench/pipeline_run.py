"""Runs of `ams pipeline` and their cost. A driver starts Java and workers, so all processes of its session count."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import ROOT, Failed, Service, last_line

LOOK_SECONDS = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class RunCost:
    """Cost of a run."""

    seconds: float = 0.0
    memory: int = 0
    """The largest resident set of all its processes together, in bytes."""
    said: str = ""
    _cpu: dict[int, float] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        """Seconds of processors, of all processes."""
        return sum(self._cpu.values())

    def look(self, session: int) -> None:
        """Update time and memory from the processes of a session."""
        resident = 0
        for pid, cpu, pages in _processes(session):
            self._cpu[pid] = max(cpu, self._cpu.get(pid, 0.0))
            resident += pages * os.sysconf("SC_PAGE_SIZE")
        self.memory = max(self.memory, resident)


def pipeline(service: Service, project: str, work: Path, name: str, *options: str) -> RunCost:
    """Run a job of `ams pipeline` to its end; raises `Failed` when it fails."""
    settings = [word for option in options for word in ("--set", option)]
    return _ams(service, project, "pipeline", "run", name, "--work", str(work), *settings)


def _ams(service: Service, project: str, *words: str) -> RunCost:
    where = {"AMS_ENDPOINT": service.url, "AMS_TOKEN": service.token, "AMS_PROJECT": project}
    return _measured([sys.executable, "-m", "ams.cli.main", *words], where)


def _measured(command: Sequence[str], environment: dict[str, str]) -> RunCost:
    taken, ended = RunCost(), threading.Event()
    started = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        looking = threading.Thread(target=_look_until, args=(ended, taken, process.pid))
        looking.start()
        taken.said, _ = process.communicate()
        ended.set()
        looking.join()
    taken.seconds = time.perf_counter() - started
    if process.returncode:
        raise Failed(f"ams {' '.join(command[3:6])} ended with {process.returncode}: {last_line(taken.said)}")
    return taken


def _look_until(ended: threading.Event, taken: RunCost, session: int) -> None:
    while not ended.wait(LOOK_SECONDS):
        taken.look(session)


def _processes(session: int) -> list[tuple[int, float, int]]:
    """Return number, processor seconds and resident pages of the processes of a session."""
    known = [(int(entry.name), _stat(entry)) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [
        (pid, (int(stat[11]) + int(stat[12])) / _TICKS, int(stat[21]))
        for pid, stat in known
        if stat and int(stat[3]) == session
    ]


def _stat(entry: Path) -> list[str]:
    """Return the fields of `/proc/PID/stat` behind the name: state, parent, group, session ..."""
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
