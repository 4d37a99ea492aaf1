"""How far a replay is: kept in its folder, slice by slice, so that it goes on where it was killed."""

import time
from pathlib import Path

import msgspec

from ams.pipeline.checkpoint import write
from ams.pipeline.errors import ChangedDefinition, StaleCheckpoint

FILE = "replay.json"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A replay under way. What it will publish is settled when it begins, however the archive grows meanwhile."""

    replay: str
    """Identity of what is replayed; its idempotency keys begin with it."""
    messages: int
    start: int
    """The first offset."""
    stop: int
    """The first offset behind the last."""
    next: int
    """Where the slice at work begins."""
    begun: float
    """When that slice was begun, in seconds since 1970."""

    @property
    def done(self) -> bool:
        """Whether everything is published."""
        return self.next >= self.stop

    def behind(self, offset: int) -> "Progress":
        """Return the progress when all before `offset` is published and the next slice begins."""
        return msgspec.structs.replace(self, next=offset, begun=time.time())


def read_progress(work: Path, replay: str) -> Progress | None:
    """Return how far the replay of a folder is, None before it began; raise `ChangedDefinition` for another one."""
    file = work / FILE
    if not file.exists():
        return None
    found = msgspec.json.decode(file.read_bytes(), type=Progress)
    if found.replay != replay:
        raise ChangedDefinition(
            f"{work} is of a replay with other options; give those again, or another folder (--work) for this one"
        )
    return found


def keep(work: Path, progress: Progress) -> None:
    """Write down how far it is."""
    work.mkdir(parents=True, exist_ok=True)
    write(work / FILE, progress)


def refuse_stale(progress: Progress, window: float) -> None:
    """Raise `StaleCheckpoint` when the slice at work was begun longer ago than the service knows keys."""
    age = time.time() - progress.begun
    if not progress.done and age > window:
        raise StaleCheckpoint(
            f"the replay was left {age / 3600:.0f} hours ago within offsets {progress.next} and following, and the "
            f"service knows keys for {window / 3600:.0f} (key_window), so some could be published twice; look what the "
            "topic holds and replay the rest, by from_offset, in another folder"
        )
