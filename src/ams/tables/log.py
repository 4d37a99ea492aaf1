"""The Delta log of a table: commits and checkpoints that survive a loss of power.

A commit is one file, `_delta_log/00000000000000000012.json`. delta-rs does not sync it. After a loss of power the
newest one may be absent, empty or cut off, and delta-rs may read a batch without its number. So each commit says how
many actions it has, and the previous one is synced before a commit begins. `recover` removes an incomplete newest
commit: it was never confirmed.

A checkpoint sums up the commits before it, so that readers need not read them all. A note exists while a checkpoint is
written; `recover` removes a checkpoint with a note. All commits are kept as long as the log is.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction

from ams.tables.location import Location

FOLDER = "_delta_log"
CHECKPOINT_EVERY = 50  # commits
HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""delta-rs makes no checkpoints, because it does not sync them, and removes nothing."""
_ENDING = ".json"
_NOTE = f"{FOLDER}/_checkpoint_begun"
_LAST = f"{FOLDER}/_last_checkpoint"


def properties(what: str, actions: int, numbers: Mapping[str, int] = {}, mark: str | None = None) -> CommitProperties:
    """Return a commit's metadata: its kind, its number of actions, and the `numbers` kept with it. No retries."""
    return CommitProperties(
        custom_metadata={"ams": {"does": what, "actions": actions, **({"mark": mark} if mark else {})}},
        max_commit_retries=0,
        app_transactions=[Transaction(name, number) for name, number in numbers.items()] or None,
    )


def commit_path(version: int) -> str:
    """Return the path of a version's commit."""
    return f"{FOLDER}/{version:020d}{_ENDING}"


def versions(location: Location) -> list[int]:
    """Return the versions whose commits exist."""
    digits = [name.removesuffix(_ENDING) for name in location.names(FOLDER) if name.endswith(_ENDING)]
    return [int(each) for each in digits if len(each) == 20 and each.isdigit()]


def sync(location: Location, version: int) -> None:
    """Sync a commit, and its name, to stable storage."""
    location.sync(commit_path(version), FOLDER)


def actions(location: Location, version: int) -> list[dict[str, Any]]:
    """Return the lines of a commit."""
    return [json.loads(line) for line in location.read(commit_path(version)).splitlines()]


def time_of(info: Mapping[str, Any]) -> datetime:
    """Return the time that a commit names."""
    return datetime.fromtimestamp(info.get("timestamp", 0) / 1000, UTC)


def rows_of(add: Mapping[str, Any]) -> int:
    """Return the rows of a file from its add action; 0 if it does not say."""
    return int(json.loads(add.get("stats") or "{}").get("numRecords") or 0)


def version_with_mark(location: Location, after: int, mark: str) -> int | None:
    """Return the version, later than `after`, whose commit has the mark; None if there is none."""
    later = (version for version in versions(location) if version > after)
    return next((each for each in later if commit_info(location, each).get("ams", {}).get("mark") == mark), None)


def commit_info(location: Location, version: int) -> Mapping[str, Any]:
    """Return a commit's metadata; empty if the commit is incomplete."""
    try:
        lines = actions(location, version)
    except ValueError:
        return {}
    info: dict[str, Any] = next((line["commitInfo"] for line in lines if "commitInfo" in line), {})
    count = info.get("ams", {}).get("actions", len(lines) - 1)  # other programs do not write the number
    return info if count == len(lines) - 1 else {}


def checkpoint(location: Location, version: int) -> None:
    """Make a checkpoint of a version."""
    with location.alone():
        location.write(_NOTE, str(version).encode())
        location.sync(_NOTE, FOLDER)
        with location.asking():
            DeltaTable(location.root, version, location.options).create_checkpoint()
        location.sync(*_checkpoint(location, version), _LAST, FOLDER)
        location.remove(_NOTE)
        location.sync(FOLDER)


def recover(location: Location) -> list[str]:
    """Remove files that a loss of power left half written. Returns a line about each. Only the writer may call it."""
    if not is_half_written(location):
        return []
    with location.alone():  # look again under the lock: another run may have recovered already
        removed = []
        if location.size(_NOTE) is not None:
            version = location.read(_NOTE)
            removed = _checkpoint(location, int(version)) if version.isdigit() else []
            removed += [_LAST] if location.size(_LAST) is not None else []
        removed += _torn(location)
        for path in (*removed, _NOTE):
            location.remove(path)
            location.sync(FOLDER)
    return [f"{location.path(path)} was not whole and not confirmed, and was removed" for path in removed]


def is_half_written(location: Location) -> bool:
    """Return whether a loss of power left something for `recover`, or a checkpoint is being made."""
    return not location.is_store and (location.size(_NOTE) is not None or bool(_torn(location)))


def _torn(location: Location) -> list[str]:
    newest = max(versions(location), default=-1)
    return [commit_path(newest)] if newest >= 0 and not commit_info(location, newest) else []


def _checkpoint(location: Location, version: int) -> list[str]:
    start = f"{version:020d}.checkpoint."
    return [f"{FOLDER}/{name}" for name in location.names(FOLDER) if name.startswith(start)]
