"""Crash coverage: the points of the service at which its tasks and threads stood when it crashed, and states of leases.

A point is an `await`, an `async for` or an `async with` of the service, or one of its calls of the disk. A crash covers
the points that tasks are at, and those of threads that wait for the disk. `python -m simulation --coverage` prints a
table of them by module.
"""

import ast
import asyncio
import functools
import sys
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ams

if TYPE_CHECKING:
    from simulation.node import Node

DISK_CALLS = frozenset(
    {
        "open", "close", "write", "write_through", "read", "truncate", "allocate", "sync", "sync_folder", "rename",
        "unlink", "names", "free_bytes",
    }
)  # fmt: skip
HOLDERS = ("files", "_files", "disk", "_disk")  # names of the service's attributes for its disk
SOURCE = Path(ams.__file__).parent
LEASES = "states of leases"
STATES = ("on lease", "waiting", "blocked by a key", "being stored", "a pull waits")
FOLDERS = ("app/lifecycle.py", "app/wiring", "http", "pubsub", "push", "service", "storage", "web")
"""Packages that a node runs; the others belong to separate programs."""
OTHER_PROGRAMS = ("kafka", "postgres", "pubsub/forwarding", "rpc")


class Point(NamedTuple):
    """A place in the code: its module as a path, and its lines."""

    module: str
    first: int
    last: int
    kind: str

    def __str__(self) -> str:
        return f"{self.module}:{self.first}"


@functools.cache
def points() -> Mapping[str, list[Point]]:
    """Return all points that a node can reach, by module."""
    found: dict[str, list[Point]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        module = str(path.relative_to(SOURCE))
        if module.startswith(FOLDERS) and not any(each in module for each in OTHER_PROGRAMS):
            here = sorted(_points_in(module, ast.parse(path.read_text())))
            if here:
                found[module] = here
    return found


def _points_in(module: str, tree: ast.Module) -> Iterator[Point]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Await):
            yield Point(module, node.lineno, node.end_lineno or node.lineno, "await")
        elif isinstance(node, ast.AsyncFor | ast.AsyncWith):
            yield Point(module, node.lineno, node.body[0].lineno - 1, "await")
        elif isinstance(node, ast.Call) and module.startswith("storage") and _is_of_the_disk(node.func):
            yield Point(module, node.lineno, node.end_lineno or node.lineno, "disk")


def _is_of_the_disk(called: ast.expr) -> bool:
    if not isinstance(called, ast.Attribute) or called.attr not in DISK_CALLS:
        return False
    holder = called.value
    name = holder.attr if isinstance(holder, ast.Attribute) else holder.id if isinstance(holder, ast.Name) else ""
    return name in HOLDERS


def met_by_crash(node: "Node") -> Iterator[str]:
    """Yield the current points of a node's tasks and threads, as text, and states of its leases."""
    life = node.life
    assert life is not None
    for task in asyncio.all_tasks(life.loop):
        yield from _at(_frames_of(task.get_coro()), "await")
    frames = sys._current_frames()
    for thread in life.threads:
        if not thread.has_ended and thread.ident in frames:
            yield from _at(_outwards(frames[thread.ident]), "disk")
    if node.service is not None:
        for opened in node.service.working.opened.all():
            backlog = opened.backlog
            found = (backlog.out, backlog.waiting, backlog.keys.blocked_messages, len(opened.storing), 0)
            yield from (f"{LEASES}:{name}" for name, count in zip(STATES, found, strict=True) if count)
        if node.service.deliverer.waiting:
            yield f"{LEASES}:{STATES[4]}"


def _frames_of(waits_for: Any) -> Iterator[types.FrameType]:
    """Yield the frames of a coroutine from the outermost to the innermost."""
    while waits_for is not None:
        frame = getattr(waits_for, "cr_frame", None) or getattr(waits_for, "gi_frame", None)
        frame = frame or getattr(waits_for, "ag_frame", None)
        if frame is not None:
            yield frame
        waits_for = (
            getattr(waits_for, "cr_await", None)
            or getattr(waits_for, "gi_yieldfrom", None)
            or getattr(waits_for, "ag_await", None)
        )


def _outwards(frame: types.FrameType | None) -> list[types.FrameType]:
    found: list[types.FrameType] = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _at(frames: Iterable[types.FrameType], kind: str) -> Iterator[str]:
    """Yield each point of the program that frames stand at."""
    for frame in frames:
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(SOURCE):
            continue
        module = str(path.relative_to(SOURCE))
        at = [
            each for each in points().get(module, ()) if each.kind == kind and each.first <= frame.f_lineno <= each.last
        ]
        if at:
            yield str(min(at, key=lambda each: each.last - each.first))


def table(met: Counter[str]) -> str:
    """Return a table: points per module that a crash has covered, and states of leases."""
    lines = [f"{'module':50} {'awaits':>7} {'met':>5} {'disk':>6} {'met':>5}"]
    totals: Counter[str] = Counter()
    for module, here in points().items():
        counts = Counter(each.kind for each in here)
        counts.update(f"{each.kind} met" for each in here if met[str(each)])
        totals += counts
        lines.append(_row(module, counts))
    lines += [_row("all", totals), "", "states of leases at a crash:"]
    lines += [f"  {name:48} {met[f'{LEASES}:{name}']:>7}" for name in STATES]
    return "\n".join(lines)


def _row(name: str, counts: Counter[str]) -> str:
    return f"{name:50} {counts['await']:>7} {counts['await met']:>5} {counts['disk']:>6} {counts['disk met']:>5}"


def unmet_points(met: Counter[str]) -> list[str]:
    """Return the points that no crash has covered."""
    return [str(each) for here in points().values() for each in here if not met[str(each)]]
