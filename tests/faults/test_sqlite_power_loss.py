"""Power cuts at every call of real SQLite, checkpoints included.

The files are built again as a power cut may leave them, and compared with the answers.

A process that uses cursors and registry runs under strace, which records every write, sync, cut and change of names,
with all bytes. For every moment of that record the files are put together in several ways: with what was synced only;
with all that was written, as a kill leaves them; and with some of what was not synced, in any order and torn. SQLite
opens each of them, and what it holds must be what was answered by then, or what was asked and not answered yet.

Syncs may be made to fail, as strace can. What such a sync was for may have reached the disk or not, and is not written
again by a later sync, as on `simulation.unreliable_disk`, whose files these are.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest

from simulation.unreliable_disk import Inode
from tests.faults.sqlite_workload import State, stored

pytestmark = [pytest.mark.strace, pytest.mark.long]

DATABASES = ("cursors", "registry")
_CALLS = "openat,write,pwrite64,fdatasync,fsync,ftruncate,unlink"
_LINE = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
_HEX = re.compile(r"\\x([0-9a-f]{2})")


@pytest.mark.parametrize(
    ("failing", "outcome"),
    [("", "done"), ("when=6+5", "failed"), ("when=14..24", "unknown")],
    ids=["no sync fails", "now and then", "for long"],
)
def test_after_a_power_cut_all_is_there_that_was_answered_and_no_part_of_what_failed(
    tmp_path: Path, failing: str, outcome: str
) -> None:
    found = check(recorded(tmp_path / "run", 8, 1, failing), tmp_path / "left", random.Random(1))

    assert found.wrong == []
    assert found.outcomes[outcome] > 2
    assert found.outcomes["done"] > 5
    assert failing or found.outcomes["done"] == found.outcomes["ask"] + 2  # and the two empty databases
    assert failing or (found.moved > 30 and found.states > 500)


class Call(NamedTuple):
    """One call of a trace: its name, the path it is about, and what else is known of it."""

    name: str
    path: str
    data: bytes = b""
    position: int = 0
    failed: bool = False


class Folder:
    """The files of a folder, and which names of them a power cut leaves."""

    def __init__(self, chance: random.Random) -> None:
        self.seen: dict[str, Inode] = {}
        self._stable: dict[str, Inode] = {}
        self._chance = chance

    def take(self, call: Call) -> None:
        name = os.path.basename(call.path)
        if call.name == "openat":
            self.seen.setdefault(name, Inode())
        elif call.name == "unlink":
            self.seen.pop(name, None)
        elif call.name == "pwrite64":
            self.seen[name].write(call.data, call.position)
        elif call.name == "ftruncate":
            self.seen[name].truncate(call.position)
        elif name in self.seen and call.failed:
            self.seen[name].fail(self._chance)
        elif name in self.seen:
            self.seen[name].sync(list(self.seen[name].pending))
        elif not call.failed:  # the folder itself
            self._stable = dict(self.seen)

    def left(self) -> Iterator[Mapping[str, bytes]]:
        """Yield what a kill leaves, and what a power cut may leave: all lost, and torn."""
        yield {name: bytes(file.seen) for name, file in self.seen.items()}
        if self.seen == self._stable and all(file.seen == file.stable for file in self.seen.values()):
            return
        yield {name: bytes(file.stable) for name, file in self._stable.items()}
        yield {name: self._torn(file) for name, file in self._names().items()}

    def _names(self) -> Mapping[str, Inode]:
        names = dict(self._stable)
        for name in sorted(self.seen.keys() | self._stable.keys()):
            if self._chance.random() < 0.5:
                continue
            if name in self.seen:
                names[name] = self.seen[name]
            else:
                del names[name]
        return names

    def _torn(self, file: Inode) -> bytes:
        torn = Inode(stable=bytearray(file.stable), pending=list(file.pending))
        torn.lose(self._chance)
        return bytes(torn.stable)


class Answers:
    """What each database may hold by what was asked and answered."""

    def __init__(self) -> None:
        self.lawful: dict[str, list[State]] = {}
        self.outcomes: Counter[str] = Counter()

    def note(self, line: bytes) -> str:
        """Take in a note of the process and return which database it is about."""
        database, what, state = json.loads(line)
        known = self.lawful.get(database, [])
        self.outcomes[what] += 1
        # Unknown is what it was while it was asked: the state before or the one that was asked for.
        if what == "ask":
            self.lawful[database] = [*known, state]
        elif what != "unknown":
            self.lawful[database] = [state]
        return str(database)


@dataclass
class Found:
    states: int = 0
    moved: int = 0  # pages that checkpoints moved from the WAL to the database
    outcomes: Mapping[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def recorded(folder: Path, steps: int, seed: int, failing: str = "") -> Sequence[Call]:
    """Run the process in a new folder under strace and return its calls in there, in order."""
    folder.mkdir()
    trace = folder.with_suffix(".trace")
    inject = ["-e", f"inject=fdatasync,fsync:error=EIO:{failing}"] if failing else []
    program = [sys.executable, "-m", "tests.faults.sqlite_workload", str(folder), str(steps), str(seed)]
    subprocess.run(
        ["strace", "-f", "-y", "-xx", "-s", "10000000", "-e", f"trace={_CALLS}", *inject, "-o", str(trace), *program],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL if failing else None,
    )  # fmt: skip
    with trace.open() as lines:
        return list(_calls(lines, str(folder)))


def check(calls: Iterable[Call], scratch: Path, chance: random.Random) -> Found:
    """Cut the power after every call, and compare what is there with what was answered."""
    answers, found = Answers(), Found()
    folders = {database: Folder(chance) for database in DATABASES}
    for number, call in enumerate(calls):
        name = os.path.basename(call.path)
        if name == "notes":
            about = answers.note(call.data) if call.name == "write" else ""
        else:
            about = name.partition(".")[0]
            for database, folder in folders.items():
                if about == database or about not in folders:  # the latter is the folder itself
                    folder.take(call)
            found.moved += call.name == "pwrite64" and name.endswith(".db")
        if about not in answers.lawful:
            continue  # the database is still being made
        for files in folders[about].left():
            found.states += 1
            wrong = _wrong(files, scratch, about, answers.lawful[about])
            if wrong:
                found.wrong.append(f"call {number} ({call.name} {call.path}): {wrong}")
    found.outcomes = answers.outcomes
    return found


def _wrong(files: Mapping[str, bytes], scratch: Path, database: str, lawful: Sequence[State]) -> str:
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for name, content in files.items():
        (scratch / name).write_bytes(content)
    try:
        state = stored(scratch / f"{database}.db")
    except Exception as error:
        return f"{database} cannot be read: {error!r}"
    if state in lawful:
        return ""
    keys = {key for each in lawful for key, _ in each.items() ^ state.items()}
    return f"{database} is not as answered in {sorted(keys)}"


def _calls(lines: Iterable[str], folder: str) -> Iterator[Call]:
    begun: dict[str, str] = {}
    for line in lines:
        thread = line.split(" ", 1)[0]
        if line.endswith("<unfinished ...>\n"):
            begun[thread] = line.removesuffix("<unfinished ...>\n").rstrip()
            continue
        if " resumed>" in line:
            line = begun.pop(thread) + line.split(" resumed>", 1)[1]
        call = _call(line)
        if call is not None and call.path.startswith(folder) and not call.path.endswith("-shm"):  # that is memory
            yield call


def _call(line: str) -> Call | None:
    found = _LINE.match(line)
    if found is None:
        return None
    name, given, result = found.groups()
    failed = result.startswith("-")
    if name in ("openat", "unlink"):
        path = _text(given.split('"')[1]).decode()
        return None if failed or (name == "openat" and "O_CREAT" not in given) else Call(name, path)
    path = _text(given.split("<", 1)[1].split(">", 1)[0]).decode()
    if name in ("fdatasync", "fsync"):
        return Call(name, path, failed=failed)
    if name == "ftruncate":
        return Call(name, path, position=int(given.rsplit(", ", 1)[1]))
    _, text, numbers = given.split('"')
    assert int(result) == len(_text(text)), "a write was cut short"
    position = int(numbers.rsplit(", ", 1)[1]) if name == "pwrite64" else 0
    return Call(name, path, _text(text), position)


def _text(written: str) -> bytes:
    return bytes.fromhex("".join(_HEX.findall(written)))
