"""Which calls the log makes of the disk, in which order, and before which answer.

What each call asks of the system stands in `tests/storage/test_files.py`.
"""

import re
from dataclasses import dataclass, field

import pytest

from ams.core.names import TopicId
from ams.storage.log.embedded import EmbeddedLog
from simulation.unreliable_disk import UnreliableDisk
from tests.storage.log.engines import HOUR, Embedded, new_topic, numbered

ONE, TWO = "7d/1.log", "7d/2.log"
BEGUN = [f"create {ONE}", f"write {ONE}", f"sync {ONE}", "sync folder 7d"]
STORED = [f"write {ONE}", f"sync {ONE}"]
NAMES = {"open": "create", "write": "write", "sync": "sync", "sync_folder": "sync folder", "truncate": "cut"}


class NotingDisk(UnreliableDisk):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        for handle, (path, file) in list(self._handles.items()):
            self._handles[handle] = (target if path == source else path, file)
        self.events.append(f"rename {short(source)} {short(target)}")

    def unlink(self, path: str) -> None:
        self.events += [f"unlink {short(path)}"] * self.exists(path)
        super().unlink(path)

    def _change(self, call: str, path: str) -> None:
        super()._change(call, path)
        if call in NAMES and path.startswith("/log"):
            self.events.append(f"{NAMES[call]} {short(path)}")


def short(path: str) -> str:
    return re.sub(r"0{3,}(\d+)\.", r"\1.", path.removeprefix("/log/").removeprefix("/"))


@dataclass
class Noted(Embedded):
    """Notes what is done to its files, and what a test says in between."""

    disk: NotingDisk = field(default_factory=NotingDisk)

    def say(self, what: str) -> None:
        self.disk.events.append(f"say {what}")

    async def begin(self, log: EmbeddedLog) -> TopicId:
        self.say("opened")
        return await new_topic(log)

    async def append(self, log: EmbeddedLog, topic: TopicId, *, times: int = 1, size: int = 0) -> None:
        for _ in range(times):
            await log.append(topic, numbered(0, 1, size=size))
            self.say("answered")

    def between(self, first: str, last: str) -> list[str]:
        """Return what happened after something was said for the first time, up to when something else was."""
        start = self.disk.events.index(f"say {first}") + 1
        return self.disk.events[start : self.disk.events.index(f"say {last}", start)]


@pytest.fixture
def noted() -> Noted:
    return Noted()


async def test_folders_are_durable_before_anything_is_served_and_every_publish_before_its_answer(noted: Noted):
    async with noted.opened() as log:
        topic = await noted.begin(log)
        noted.say("created")
        await noted.append(log, topic, times=2)
    noted.say("closed")

    served = noted.disk.events[: noted.disk.events.index("say opened")]
    assert set(served) == {
        "sync folder log",
        *(f"sync folder {name}" for name in ("1h", "1d", "7d", "30d", "1y", "cursors")),
    }
    assert noted.between("opened", "created") == [*BEGUN, *STORED]
    assert noted.between("created", "closed") == [*STORED, "say answered", *STORED, "say answered", *STORED]


async def test_in_intervals_answers_do_not_wait_and_all_of_an_interval_is_synced_at_its_end(noted: Noted):
    async with noted.opened(sync="interval", sync_interval_ms=HOUR) as log:
        await noted.append(log, await noted.begin(log), times=2)
        noted.clock.advance(HOUR)
        for _ in range(2):
            await log.retain()  # wakes the committer, whose interval is over
        noted.say("interval over")

    written = f"write {ONE}"
    assert noted.between("opened", "interval over") == [
        *BEGUN, written, written, "say answered", written, "say answered", f"sync {ONE}",
    ]  # fmt: skip


@pytest.mark.parametrize("sync", ["always", "interval"])
async def test_a_full_segment_is_followed_by_one_that_is_durable_before_it_is_written(noted: Noted, sync: str):
    # No zeros are written ahead: they come when they come.
    async with noted.opened(segment_bytes=1500, ahead_bytes=0, sync=sync, sync_interval_ms=HOUR) as log:
        await noted.append(log, await noted.begin(log), times=2, size=900)
        await log.retain()
        noted.say("sealed")

    begun, stored = [each.replace(ONE, TWO) for each in BEGUN], [each.replace(ONE, TWO) for each in STORED]
    if sync == "interval":
        after = noted.between("answered", "answered")
        assert [each for each in after if "folder" not in each and ".idx" not in each] == [
            f"sync {ONE}", *begun[:3], f"write {TWO}",
        ]  # fmt: skip
        return
    after = noted.between("answered", "sealed")
    assert [each for each in after if ".idx" not in each][: len(begun)] == begun
    assert [each for each in after if TWO in each or "say" in each] == [*begun[:3], *stored, "say answered"]
    new = "7d/1.idx.new"
    index = [f"create {new}", f"write {new}", f"sync {new}", f"rename {new} 7d/1.idx", "sync folder 7d"]
    assert [each for each in after if each in index][-len(index) :] == index


async def test_an_old_segment_is_gone_for_good_before_its_index_goes(noted: Noted):
    async with noted.opened(retention=HOUR, segment_bytes=1500) as log:
        await noted.append(log, await noted.begin(log), times=2, size=900)
        noted.clock.advance(HOUR // 8)
        await log.retain()
        noted.clock.advance(2 * HOUR)
        noted.say("old")
        await log.retain()
        noted.say("removed")

    assert [each for each in noted.between("old", "removed") if "1h/1." in each or each == "sync folder 1h"][:3] == [
        "unlink 1h/1.log", "sync folder 1h", "unlink 1h/1.idx",
    ]  # fmt: skip


async def test_a_file_has_lost_its_name_before_it_is_written_over_and_has_its_header_before_another_name(noted: Noted):
    async with noted.opened(retention=HOUR, segment_bytes=1500) as log:
        topic = await noted.begin(log)
        await noted.append(log, topic, size=900)
        noted.clock.advance(HOUR - HOUR // 16)
        await noted.append(log, topic, size=900)
        noted.clock.advance(HOUR // 16 + 1)
        noted.say("old")
        await log.retain()
        noted.say("kept")
        await noted.append(log, topic, size=900)
    noted.say("closed")

    spare, third = "1h/1.new", "1h/3.log"
    assert noted.between("old", "kept")[-2:] == [f"rename 1h/1.log {spare}", "sync folder 1h"]
    named = [f"write {spare}", f"sync {spare}", f"rename {spare} {third}", "sync folder 1h"]
    assert noted.between("kept", "closed")[:7] == [*named, f"write {third}", f"sync {third}", "say answered"]
    assert noted.disk.events[-3:] == [f"cut {third}", f"sync {third}", "say closed"]


async def test_a_torn_end_is_cut_and_what_is_kept_written_again_and_synced_before_it_is_served(noted: Noted):
    async with noted.opened() as log:
        await noted.append(log, await new_topic(log))
    path = noted.disk.paths(".log")[0]
    noted.disk.write(noted.disk.open(path), b"half a record", len(noted.disk.content(path)))
    noted.say("torn")
    async with noted.opened():
        noted.say("opened")

    found = noted.between("torn", "opened")
    assert [each for each in found if ONE in each] == [f"cut {ONE}", f"write {ONE}", f"sync {ONE}"]
    assert found.index(f"sync {ONE}") < found.index("sync folder 7d")
