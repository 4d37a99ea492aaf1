"""The disk of the node: in memory; each call is a step that takes time.

The log and the databases are on it. Only the node's small files are real; see `simulation.node`.
"""

import errno
import os
from collections.abc import Callable, Mapping
from typing import Any

from simulation.threads import pause
from simulation.unreliable_disk import UnreliableDisk
from simulation.world import World

_CALLS = (
    "open", "close", "write", "write_through", "read", "truncate", "allocate", "sync_folder", "rename", "unlink",
    "names", "free_bytes",
)  # fmt: skip


class NodeDisk(UnreliableDisk):
    """A disk that keeps synced data; a power cut may lose anything else."""

    def __init__(self, world: World, capacity: int) -> None:
        super().__init__(capacity=capacity)
        self._world = world
        self.slowness = 1.0  # factor on the time of each call
        self.processes = 0  # number of processes that have ended on it
        self.locks: dict[str, Any] = {}  # of databases, by path; see `simulation.sqlite_files`
        self.during_sync = self._sync_slowly

    @property
    def open_paths(self) -> list[str]:
        """The files that are open, once for each handle."""
        return sorted(path for path, _ in self._handles.values())

    def forget(self, handle: int) -> None:
        """Close a handle, taking no time and ignoring faults."""
        self._handles.pop(handle, None)
        self._heard.pop(handle, None)

    def draws(self, share: float) -> bool:
        """Draw a boolean that is true with this probability."""
        return self._world.chance.random() < share

    def make_durable(self, folder: str) -> None:
        """Make a folder and its parents, synced."""
        self.make_folder(folder)
        while folder != "/":
            folder = os.path.dirname(folder)
            super().sync_folder(folder)

    def keep(self, path: str, content: bytes) -> None:
        """Store a file, synced, taking no time."""
        self.make_durable(os.path.dirname(path))
        handle = UNTIMED["open"](self, path, create=True)
        UNTIMED["write"](self, handle, content, 0)
        super().sync(handle)
        super().sync_folder(os.path.dirname(path))
        self.forget(handle)

    def leave(self, size: int) -> None:
        """Leave this many bytes free on the disk."""
        self.capacity = self._used_bytes() + size

    def halt(self) -> None:
        """Fail each call from now on: the process or the power is gone."""
        self.stop_at = self.changes
        self.processes += 1
        self.locks.clear()

    def revive(self) -> None:
        """Work again after the end of a process: its writes are visible, and no more durable than before."""
        self.stop_at = None
        self.heal()
        self._handles.clear()
        self._heard.clear()

    def take_time(self) -> None:
        """Take the time of one call."""
        if not self.is_stopped:
            pause(self._world.draw(self._world.latencies.disk) * self.slowness)

    def _sync_slowly(self) -> None:
        if not self.is_stopped:
            pause(self._world.draw(self._world.latencies.sync) * self.slowness)


def _with_latency(call: Callable[..., Any]) -> Callable[..., Any]:
    def call_after_latency(disk: NodeDisk, *given: Any, **named: Any) -> Any:
        disk.take_time()
        if disk.is_stopped:  # a failing write would keep a part of its data
            raise OSError(errno.EIO, "the power is gone")
        return call(disk, *given, **named)

    return call_after_latency


UNTIMED: Mapping[str, Callable[..., Any]] = {name: getattr(UnreliableDisk, name) for name in _CALLS}
"""Calls that take no time."""

for _name in _CALLS:
    setattr(NodeDisk, _name, _with_latency(getattr(UnreliableDisk, _name)))
