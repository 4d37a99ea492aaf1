"""Checkpoints that are too old to go on from.

A batch that was begun and not finished is published again when its query starts again. What of it was stored the first
time is known to the service by its keys, but not for ever: for the setting `idempotency_window`, and no longer than the
topic keeps its messages. No route tells these, so the option `keyWindow` does. A checkpoint whose last batch is
finished may be of any age.
"""

import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from ams.pipeline.errors import StaleCheckpoint


def local_folder(checkpoint: str | None) -> Path | None:
    """Return the folder of a checkpoint that is on a file system of this machine, None of any other."""
    if checkpoint is None or urlsplit(checkpoint).scheme not in ("", "file"):
        return None
    return Path(unquote(urlsplit(checkpoint).path) if checkpoint.startswith("file:") else checkpoint)


def refuse_stale(checkpoint: Path, window: float, now: float | None = None) -> None:
    """Raise `StaleCheckpoint` if a batch was begun more than `window` seconds before `now` and never finished."""
    number = unfinished(_names(checkpoint / "offsets"), _names(checkpoint / "commits"))
    if number is None:
        return
    age = (time.time() if now is None else now) - begun((checkpoint / "offsets" / str(number)).read_bytes())
    if age > window:
        raise StaleCheckpoint(
            f"batch {number} of {checkpoint} was begun {_told(age)} ago and never finished; the service may have "
            f"forgotten what it stored of it (keyWindow is {_told(window)}), so messages could be published twice. "
            "If the service knows keys for longer, say so by keyWindow; else look what the topics hold and go on "
            "with a new checkpoint from there"
        )


def unfinished(offsets: Iterable[str], commits: Iterable[str]) -> int | None:
    """Return the last batch that was begun, by the names in a checkpoint, unless it was finished."""
    begun, finished = (
        max((int(name) for name in names if name.isdecimal()), default=-1) for names in (offsets, commits)
    )
    return begun if begun > finished else None


class _Metadata(msgspec.Struct, rename="camel"):
    batch_timestamp_ms: int


def begun(entry: bytes) -> float:
    """Return when a batch was begun, in seconds since 1970, by its entry among the offsets of a checkpoint.

    The entry is a line with its version, one of JSON about the batch, and one for each source.
    """
    return msgspec.json.decode(entry.split(b"\n")[1], type=_Metadata).batch_timestamp_ms / 1000


def _names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()] if folder.is_dir() else []


def _told(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
