"""Power loss under SQLite: the files are built again as a power cut may leave them, and compared with the answers.

A process that uses cursors and registry runs under strace, which records every write, sync, cut and change of names,
with all bytes. For every moment of that record the files are put together in several ways: with what was synced only;
with all that was written, as a kill leaves them; and with some of what was not synced, in any order and torn. SQLite
opens each of them, and what it holds must be what was answered by then, or what was asked and not answered yet.

Syncs may be made to fail, as strace can. What such a sync was for may have reached the disk or not, and is not written
again by a later sync (as Linux does it), unless it is changed again.

`python -m tests.faults.sqlite_power_loss --runs N --seed S` runs N records, half of them with failing syncs, and ends
with one JSON line. The exit code is 1 when an answer was wrong; `strace` must be there.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.faults.sqlite_workload import State, stored

PAGE, SECTOR = 4096, 512
DATABASES = ("cursors", "registry")
_CALLS = "openat,write,pwrite64,fdatasync,fsync,ftruncate,unlink"
_LINE = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
_HEX = re.compile(r"\\x([0-9a-f]{2})")

FAILING = ("when=9+7", "when=20..60", "when=30+2")
"""Which syncs of each thread fail: now and then one; a long time; each second one."""


class Call(NamedTuple):
    """One call of a trace: its name, the path it is about, and what else is known of it."""

    name: str
    path: str
    data: bytes = b""
    position: int = 0
    failed: bool = False


@dataclass(eq=False)
class File:
    """A file as programs see it, as it is on the disk, and what lies between the two."""

    seen: bytearray = field(default_factory=bytearray)
    stable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes since the last sync (position, bytes) and cuts (size, None)."""
    doubtful: dict[int, bytes] = field(default_factory=dict)
    """Pages of failed syncs, by number."""

    def write(self, data: bytes, position: int) -> None:
        _put(self.seen, data, position)
        self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        _resize(self.seen, size)
        self.pending.append((size, None))

    def sync(self, *, failed: bool) -> None:
        """Bring the pages that were written to the disk; of a sync that failed, nobody knows which."""
        pages = {
            page
            for position, data in self.pending
            if data
            for page in range(position // PAGE, (position + len(data) - 1) // PAGE + 1)
        }
        for page in pages:
            content = bytes(self.seen[page * PAGE : (page + 1) * PAGE])
            if failed:
                self.doubtful[page] = content
            else:
                self.doubtful.pop(page, None)
                _put(self.stable, content, page * PAGE)
        if not failed:
            _resize(self.stable, len(self.seen))
        self.pending.clear()

    def lost(self) -> bytes:
        """Return what is there when all that was not synced is lost."""
        return bytes(self.stable)

    def torn(self, chance: random.Random) -> bytes:
        """Return what is there when some of what was not synced reached the disk, in any order."""
        content = bytearray(self.stable)
        for page, data in self.doubtful.items():
            _put_some(content, data, page * PAGE, chance)
        for position, written in chance.sample(self.pending, len(self.pending)):
            if chance.random() < 0.3:
                continue
            if written is None:
                _resize(content, position)
            else:
                _put_some(content, written, position, chance)
        return bytes(content)

    @property
    def is_settled(self) -> bool:
        """Whether a power cut has no choice."""
        return not self.pending and not self.doubtful


class Folder:
    """The files of a folder, and which names of them a power cut leaves."""

    def __init__(self) -> None:
        self.seen: dict[str, File] = {}
        self._stable: dict[str, File] = {}

    def take(self, call: Call) -> None:
        """Do what a call did."""
        name = os.path.basename(call.path)
        if call.name == "openat":
            self.seen.setdefault(name, File())
        elif call.name == "unlink":
            self.seen.pop(name, None)
        elif call.name == "pwrite64":
            self.seen[name].write(call.data, call.position)
        elif call.name == "ftruncate":
            self.seen[name].truncate(call.position)
        elif name in self.seen:
            self.seen[name].sync(failed=call.failed)
        elif not call.failed:  # the folder itself
            self._stable = dict(self.seen)

    def _torn(self, chance: random.Random) -> Mapping[str, bytes]:
        names = dict(self._stable)
        for name in sorted(self.seen.keys() | self._stable.keys()):
            if chance.random() < 0.5:
                continue
            if name in self.seen:
                names[name] = self.seen[name]
            else:
                del names[name]
        return {name: file.torn(chance) for name, file in names.items()}

    def left(self, chance: random.Random, ways: int) -> Iterator[Mapping[str, bytes]]:
        """Return what a kill leaves, and what a power cut may leave: all lost, and torn in some `ways`."""
        yield {name: bytes(file.seen) for name, file in self.seen.items()}
        if self.seen == self._stable and all(file.is_settled for file in self.seen.values()):
            return
        yield {name: file.lost() for name, file in self._stable.items()}
        for _ in range(ways):
            yield self._torn(chance)


class Answers:
    """What each database may hold by what was asked and answered."""

    def __init__(self) -> None:
        self.lawful: dict[str, list[State]] = {}
        self.outcomes: dict[str, int] = {}

    def note(self, line: bytes) -> str:
        """Take in a note of the process and return which database it is about."""
        database, what, state = json.loads(line)
        known = self.lawful.get(database, [])
        self.outcomes[what] = self.outcomes.get(what, 0) + 1
        # Unknown is what it was while it was asked: the state before or the one that was asked for.
        if what == "ask":
            self.lawful[database] = [*known, state]
        elif what != "unknown":
            self.lawful[database] = [state]
        return str(database)


@dataclass
class Found:
    """What came of a record, or of several."""

    states: int = 0
    cuts: int = 0
    moved: int = 0
    """Pages that checkpoints moved from the WAL to the database."""
    outcomes: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def recorded(folder: Path, steps: int, seed: int, failing: str = "") -> Sequence[Call]:
    """Run the process in a new folder under strace and return its calls in there, in order."""
    folder.mkdir()
    trace = folder.with_suffix(".trace")
    inject = ["-e", f"inject=fdatasync,fsync:error=EIO:{failing}"] if failing else []
    program = [sys.executable, "-m", "tests.faults.sqlite_workload", str(folder), str(steps), str(seed)]
    subprocess.run(
        ["strace", "-f", "-y", "-xx", "-s", "10000000", "-e", f"trace={_CALLS}", *inject, "-o", str(trace), *program],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if failing else None,
    )
    with trace.open() as lines:
        return list(_calls(lines, str(folder)))


def check(calls: Iterable[Call], scratch: Path, chance: random.Random, ways: int, found: Found) -> None:
    """Cut the power after every call, in some `ways` each, and compare what is there with what was answered."""
    answers = Answers()
    folders = {database: Folder() for database in DATABASES}
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
        found.cuts += 1
        for files in folders[about].left(chance, ways):
            found.states += 1
            wrong = _wrong(files, scratch, about, answers.lawful[about])
            if wrong:
                found.wrong.append(f"call {number} ({call.name} {call.path}): {wrong}")
    for what, count in answers.outcomes.items():
        found.outcomes[what] = found.outcomes.get(what, 0) + count


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
    keys = {key for each in lawful for key in each.keys() ^ state.keys() | _differing(each, state)}
    return f"{database} is not as answered in {sorted(keys)}"


def _differing(one: State, other: State) -> set[str]:
    return {key for key in one.keys() & other.keys() if one[key] != other[key]}


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


def _put(content: bytearray, data: bytes, position: int) -> None:
    _resize(content, max(len(content), position))
    content[position : position + len(data)] = data


def _put_some(content: bytearray, data: bytes, position: int, chance: random.Random) -> None:
    """Put some sectors of a write, often all."""
    whole = chance.random() < 0.6
    for start in range(0, len(data), SECTOR):
        if whole or chance.random() < 0.5:
            _put(content, data[start : start + SECTOR], position + start)


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--ways", type=int, default=6, help="torn states of each moment, beside the two others")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if shutil.which("strace") is None:
        sys.exit("strace is missing: install the Debian package strace")
    found = Found()
    with tempfile.TemporaryDirectory() as place:
        for run in range(given.runs):
            failing = FAILING[run // 2 % len(FAILING)] if run % 2 else ""
            calls = recorded(Path(place) / f"run{run}", given.steps, given.seed + run, failing)
            check(calls, Path(place) / "left", random.Random(given.seed + run), given.ways, found)
            print(f"run {run + 1} of {given.runs}: {found.states} states, {len(found.wrong)} wrong", file=sys.stderr)
    for each in found.wrong[:50]:
        print(each, file=sys.stderr)
    print(json.dumps({**vars(found), "wrong": len(found.wrong)}))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
