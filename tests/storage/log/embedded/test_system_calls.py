"""The log's system calls on the real disk, in their order and before which answer, as the kernel sees them.

All other tests of power losses use a disk in memory, and rely on this.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.strace

CALLS = "openat,pwrite64,pwritev,pwritev2,fdatasync,fsync,ftruncate,rename,unlink,write"
ONE, TWO = "7d/1.log", "7d/2.log"
BEGIN_CALLS = [f"create {ONE}", f"write {ONE}", f"sync {ONE}", "sync folder 7d"]
STORE_CALLS = [f"write {ONE}", f"sync {ONE}"]
_CALL = re.compile(r"\d+ +(\w+)\((.*)\) += (-?\d+)")


def trace(case: str, folder: Path) -> list[str]:
    """Run a case under strace; return its calls on the folder and its output, in order of completion."""
    log, file = folder / "log", folder / "trace"
    command = ["strace", "-f", "-y", "-s", "32", "-o", str(file), "-e", f"trace={CALLS}"]
    python = [sys.executable, "-m", "tests.storage.log.embedded.traced", case, str(log)]
    subprocess.run([*command, *python], check=True, timeout=600, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return list(_events(_whole_lines(file.read_text(errors="replace")), str(log)))


def _whole_lines(text: str) -> Iterator[str]:
    """Join the two halves of interrupted calls; each stands at its return."""
    halves: dict[str, str] = {}
    for line in text.splitlines():
        thread = line.split(" ", 1)[0]
        if line.endswith("<unfinished ...>"):
            halves[thread] = line.removesuffix("<unfinished ...>")
        elif "resumed>" in line and thread in halves:
            yield halves.pop(thread) + line.split("resumed>", 1)[1]
        else:
            yield line


def _events(lines: Iterator[str], folder: str) -> Iterator[str]:
    for call, arguments, result in (match.groups() for match in map(_CALL.match, lines) if match):
        said = re.search(r'"say (.*)\\n"', arguments)
        if said:
            yield f"say {said[1]}"
        elif int(result) >= 0 and folder in arguments:
            yield from _event(call, arguments, folder)


def _event(call: str, arguments: str, folder: str) -> Iterator[str]:
    names = [_shorten_name(each) for each in re.findall(re.escape(folder) + r"/?([^\">]*)", arguments)]
    if call == "openat":
        yield from [f"create {names[-1]}"] if "O_CREAT" in arguments else []
    elif call == "fsync":
        yield f"sync folder {names[0]}"
    elif call == "fdatasync":
        yield f"sync {names[0]}"
    elif call in ("unlink", "rename"):
        yield " ".join((call, *names))
    elif call == "ftruncate":
        yield f"cut {names[0]}"
    else:
        yield f"write {names[0]}"
        yield from [f"sync {names[0]}"] if "RWF_DSYNC" in arguments else []


def _shorten_name(name: str) -> str:
    return re.sub(r"0{3,}(\d+)\.", r"\1.", name) or "log"


def events_between(events: list[str], first: str, last: str) -> list[str]:
    """Return the events between the first outputs of two lines."""
    start = events.index(f"say {first}") + 1
    return events[start : events.index(f"say {last}", start)]


def test_folders_are_durable_before_anything_is_served_and_every_publish_before_its_answer(tmp_path: Path) -> None:
    events = trace("publish", tmp_path)

    assert set(events[: events.index("say opened")]) == {
        "sync folder log",
        *(f"sync folder {name}" for name in ("1h", "1d", "7d", "30d", "1y", "cursors")),
    }
    assert events_between(events, "opened", "created") == [*BEGIN_CALLS, *STORE_CALLS]
    assert events_between(events, "created", "closed") == [
        *STORE_CALLS, "say answered", *STORE_CALLS, "say answered", *STORE_CALLS,
    ]  # fmt: skip


def test_in_intervals_answers_do_not_wait_and_all_of_an_interval_is_synced_at_its_end(tmp_path: Path) -> None:
    events = trace("interval", tmp_path)

    written = f"write {ONE}"
    assert events_between(events, "opened", "interval over") == [
        *BEGIN_CALLS, written, written, "say answered", written, "say answered", f"sync {ONE}",
    ]  # fmt: skip


def test_a_full_segment_is_followed_by_one_that_is_durable_before_it_is_written_and_gets_its_index(tmp_path: Path):
    events = trace("rollover", tmp_path)

    begun, stored = [each.replace(ONE, TWO) for each in BEGIN_CALLS], [each.replace(ONE, TWO) for each in STORE_CALLS]
    answered = [*begun, *stored, "say answered"]
    new = "7d/1.idx.new"
    index = [f"create {new}", f"write {new}", f"sync {new}", f"rename {new} 7d/1.idx", "sync folder 7d"]
    after = events_between(events, "answered", "sealed")
    assert [each for each in after if ".idx" not in each][: len(begun)] == begun
    assert [each for each in after if TWO in each or "say" in each] == [
        each for each in answered if "folder" not in each
    ]
    assert [each for each in after if each in index][-len(index) :] == index


def test_in_intervals_a_full_segment_is_synced_before_its_successor_is_begun(tmp_path: Path) -> None:
    after = events_between(trace("interval_rollover", tmp_path), "answered", "answered")
    assert [each for each in after if "folder" not in each and ".idx" not in each] == [
        f"sync {ONE}", f"create {TWO}", f"write {TWO}", f"sync {TWO}", f"write {TWO}",
    ]  # fmt: skip


def test_an_old_segment_is_gone_for_good_before_its_index_goes(tmp_path: Path) -> None:
    events = trace("retention", tmp_path)
    assert [each for each in events_between(events, "old", "removed") if "1h/1." in each or each == "sync folder 1h"][
        :3
    ] == ["unlink 1h/1.log", "sync folder 1h", "unlink 1h/1.idx"]


def test_a_file_has_lost_its_name_before_it_is_written_over_and_has_its_header_before_another_name(tmp_path: Path):
    events = trace("reuse", tmp_path)

    spare, third = "1h/1.new", "1h/3.log"
    assert events_between(events, "old", "kept")[-2:] == [f"rename 1h/1.log {spare}", "sync folder 1h"]
    begun = [f"write {spare}", f"sync {spare}", f"rename {spare} {third}", "sync folder 1h"]
    assert events_between(events, "kept", "closed")[:7] == [*begun, f"write {third}", f"sync {third}", "say answered"]
    assert events[-3:] == [f"cut {third}", f"sync {third}", "say closed"]


def test_a_torn_end_is_cut_and_what_is_kept_written_again_and_synced_before_it_is_served(tmp_path: Path) -> None:
    found = events_between(trace("torn", tmp_path), "torn", "opened")
    assert [each for each in found if ONE in each] == [f"cut {ONE}", f"write {ONE}", f"sync {ONE}"]
    assert found.index(f"sync {ONE}") < found.index("sync folder 7d")
