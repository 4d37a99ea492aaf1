"""A machine that loses its power at a chosen sync, with all unsynced data."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from unittest.mock import patch

from ams.tables import location


class ProcessKilled(Exception):
    """The process was killed."""


DAMAGES = ("kept", "gone", "empty", "half", "first line", "all but the last line", "zeros")
"""Possible damage to a file that was not synced, or whose name was not."""


def damage_content(content: bytes, damage: str) -> bytes | None:
    """Return the rest of a file, None when it is gone."""
    lines = content.splitlines(keepends=True)
    return {
        "kept": content, "gone": None, "empty": b"", "half": content[: len(content) // 2],
        "first line": b"".join(lines[:1]), "all but the last line": b"".join(lines[:-1]), "zeros": bytes(len(content)),
    }[damage]  # fmt: skip


@dataclass
class LosingMachine:
    """Files below a folder, and which of them are on stable storage."""

    folder: Path
    contents: dict[str, bytes] = field(default_factory=dict)  # of files, at their last sync
    names: dict[str, dict[str, int]] = field(default_factory=dict)
    """Entries of folders, with inode numbers, which survive a rename."""
    syncs: int = 0

    @contextmanager
    def running(self, syncs_left: int) -> Iterator[None]:
        """Let a process run until it wants to sync once more than allowed."""

        def sync(path: str) -> None:
            nonlocal syncs_left
            if not path.startswith(str(self.folder)):
                return
            if syncs_left == 0:
                raise ProcessKilled(path)
            syncs_left -= 1
            self.syncs += 1
            self._sync(Path(path))

        with patch.object(location, "sync", sync):
            yield

    def lose_power(self, damages: Sequence[str]) -> None:
        """Apply `damages` in turn to the files that are not on stable storage."""
        choice = cycle(damages)
        self._take_names_back(choice)
        for path in sorted(each for each in self.folder.rglob("*") if each.is_file()):
            is_synced = self.contents.get(str(path)) == path.read_bytes()
            if is_synced and self._is_named(path):
                continue
            damage = next(choice)
            left = damage_content(path.read_bytes(), "gone" if is_synced and damage != "kept" else damage)
            path.unlink() if left is None else path.write_bytes(left)
        for text, content in self.contents.items():
            path = Path(text)
            if not path.exists() and self._is_named(path) and next(choice) == "gone":
                path.write_bytes(content)  # its removal is lost
        self.settle()

    def _take_names_back(self, choice: Iterator[str]) -> None:
        """Restore the folders' names at their last sync."""
        for above, names in self.names.items():
            there = {each.stat().st_ino: each for each in Path(above).iterdir()} if Path(above).is_dir() else {}
            for name, number in names.items():
                found = there.get(number)
                if found is not None and found.is_dir() and found.name not in names and next(choice) != "kept":
                    found.rename(Path(above, name))

    def _sync(self, path: Path) -> None:
        if path.is_dir():
            self.names[str(path)] = {each.name: each.stat().st_ino for each in path.iterdir()}
        else:
            self.contents[str(path)] = path.read_bytes()

    def _is_named(self, path: Path) -> bool:
        if path == self.folder:
            return True
        return path.name in self.names.get(str(path.parent), {}) and self._is_named(path.parent)

    def settle(self) -> None:
        """Treat all files as synced, as after a start."""
        self.contents, self.names = {}, {}
        for path in [self.folder, *self.folder.rglob("*")]:
            self._sync(path)
