"""`python -m bench.where [--quick] [--write] [KIND ...]`: where the processor time of a request goes, step by step.

Prints tables in Markdown, at their end what the last full runs of the bench on this machine reached. With `--write`
they take their place in `docs/explanation/performance.md`, and the flame picture of a publish stands beside it. When
kinds of requests are named, only these are looked at, and a flame picture of each is written.
"""

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import ams
from bench import raw
from bench.callers import Publish
from bench.disk import appends
from bench.goals import reached
from bench.preparing import project, topics
from bench.processes import ROOT, Failed
from bench.profiles import (
    ACKNOWLEDGE,
    ASIDE,
    KINDS,
    LONE,
    PUBLISH,
    PUBLISH_100,
    PULL,
    STORES,
    Kind,
    Profile,
    of_bare,
    of_service,
    together,
)
from bench.report import HISTORY, progress
from bench.run import FULL, QUICK, Bench
from bench.steps import ORDER, in_order

PAGE = ROOT / "docs" / "explanation" / "performance.md"
PICTURE = PAGE.with_name("performance-publish.svg")
BEGIN, END = "<!-- figures: python -m bench.where --write -->", "<!-- end of figures -->"
SECONDS, QUICK_SECONDS = 15.0, 2.0
KINDS_BY_NAME = {each.name: each for each in KINDS}
FUNCTIONS = 15
"""How many of those that take most are listed."""


class Found(NamedTuple):
    """All that the page shows."""

    publish: Profile
    bare: Profile
    publish_100: Profile
    bare_100: Profile
    pull: Profile
    acknowledge: Profile
    lone: Profile
    medians: "Medians"


class Medians(NamedTuple):
    """Median milliseconds of a publish of 1 without others, and of what it is made of."""

    publish: float
    bare: float
    fdatasync: float


def find(bench: Bench, seconds: float) -> Found:
    """Measure all; raises `Failed`."""
    publish, bare = _beside_bare(bench, PUBLISH, 1, seconds)
    publish_100, bare_100 = _beside_bare(bench, PUBLISH_100, 100, seconds)
    progress("  pull 100, acknowledge, a caller who is alone")
    pull, acknowledge = of_service(bench, PULL, seconds), of_service(bench, ACKNOWLEDGE, seconds)
    lone = of_service(bench, LONE, seconds)
    return Found(publish, bare, publish_100, bare_100, pull, acknowledge, lone, _medians(bench))


def _beside_bare(bench: Bench, kind: Kind, messages: int, seconds: float) -> tuple[Profile, Profile]:
    """Look at the service and the bare handler in turn, so that a noisy minute hits both."""
    part = seconds / bench.plan.pairs
    pairs = bench.in_turn(
        kind.title, lambda: of_service(bench, kind, part), lambda: of_bare(bench, kind, messages, part)
    )
    ours, theirs = zip(*pairs, strict=True)
    return together(ours), together(theirs)


def _medians(bench: Bench) -> Medians:
    with bench.service() as service, bench.bare() as bare:
        work = Publish(topics(service, project(service, "BENCH"), "lone", 1))
        turns = [
            (
                bench.load(service, work, 1).p50,
                bench.load(bare, work, 1).p50,
                appends(bench.folder, raw.stored_bytes(1), bench.plan.seconds / 2).p50,
            )
            for _ in range(bench.plan.pairs)
        ]
    return Medians(*(1000 * median(each) for each in zip(*turns, strict=True)))


def figures(found: Found) -> str:
    """Return the tables."""
    parts = [
        f"On {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, version"
        f" {ams.__version__}; client, service and all that they call on the one machine.",
        *_of_publish(found),
        *_of_others(found),
        *_of_the_disk(found),
        *_of_a_lone_caller(found.lone, found.medians),
        *_of_functions(found.publish),
        *_of_goals(),
    ]
    return "\n\n".join(parts)


def _of_publish(found: Found) -> Iterator[str]:
    ours, bare = found.publish, found.bare
    yield f"### A publish of 1 message, {ours.kind.connections} connections"
    rows = [
        (step, f"{took:.1f}", f"{100 * took / ours.whole:.0f} %", _or_dash(bare.steps().get(step)))
        for step, took in _rows(ours)
    ]
    rows.append(("**all**", f"**{ours.whole:.1f}**", "", f"**{bare.whole:.1f}**"))
    yield _table(("Step", "µs", "Share", "Bare handler, µs"), rows)
    yield f"![Where the processor time of a publish goes]({PICTURE.name})"


def _of_others(found: Found) -> Iterator[str]:
    yield "### Other requests"
    columns = (found.publish_100, found.bare_100, found.pull, found.acknowledge)
    by_step = [dict(_rows(each)) for each in columns]
    steps = [step for step in (*ORDER, *ASIDE) if any(step in each for each in by_step)]
    rows = [(step, *(_or_dash(each.get(step)) for each in by_step)) for step in steps]
    rows.append(("**all**", *(f"**{each.whole:.1f}**" for each in columns)))
    yield _table(("Step, µs", "Publish 100", "Bare handler, 100", "Pull 100", "Acknowledge"), rows)


def _rows(profile: Profile) -> Iterator[tuple[str, float]]:
    """Yield the steps of a request with their microseconds, and what other threads do of it."""
    yield from in_order(profile.steps())
    yield from profile.aside()


def _of_the_disk(found: Found) -> Iterator[str]:
    yield "### What the disk costs"
    rows = []
    for profile in (found.publish, found.publish_100):
        of_thread = {name: each for name, each in profile.disk.items() if name.startswith(f"{STORES} ")}
        calls = sum(each.calls for name, each in of_thread.items() if name.startswith(f"{STORES} write"))
        wall = sum(each.wall for each in of_thread.values())
        used = sum(each.processor for each in of_thread.values())
        if calls:
            rows.append(
                (
                    profile.kind.title,
                    f"{profile.requests / calls:.1f}",
                    f"{1000 * wall / calls:.2f}",
                    f"{1e6 * used / calls:.0f}",
                    f"{1e6 * used / profile.requests:.1f}",
                )
            )
    yield _table(
        ("Group commits", "Requests in one", "Write with its sync, ms", "Its processor time, µs", "of a request, µs"),
        rows,
    )


def _of_a_lone_caller(lone: Profile, medians: Medians) -> Iterator[str]:
    yield "### A caller who is alone"
    rest = medians.publish - medians.bare - medians.fdatasync
    rows = [
        ("publish of 1", f"{medians.publish:.3f}"),
        ("a request to the bare handler", f"{medians.bare:.3f}"),
        ("an fdatasync of as many bytes", f"{medians.fdatasync:.3f}"),
        ("the rest", f"{rest:.3f}"),
    ]
    yield _table(("Median", "ms"), rows)
    whole, disk = 1e6 / lone.requests_per_second, lone.in_calls_of_the_disk
    storing = dict(lone.aside()).get(ASIDE[0], 0.0)
    rows = [
        ("the event loop", f"{lone.loop:.0f}"),
        ("the thread that stores, without the disk", f"{storing:.0f}"),
        ("the disk", f"{disk:.0f}"),
        ("the caller, the network, and threads that wake up", f"{whole - lone.loop - storing - disk:.0f}"),
        ("**all**", f"**{whole:.0f}**"),
    ]
    yield _table(("The same by who is at work, on the average", "µs"), rows)


def _of_functions(profile: Profile) -> Iterator[str]:
    yield f"### Functions that take most themselves, of {profile.kind.title}"
    rows = []
    for frame, took in profile.functions()[:FUNCTIONS]:
        name, _, file = frame.rpartition(" ")
        where = f"`{file}`" if file else "-"
        rows.append((f"`{name}`", where, f"{took:.1f}", f"{100 * took / profile.whole:.1f} %"))
    yield _table(("Function", "File", "µs", "Share"), rows)


def _of_goals() -> Iterator[str]:
    rows = reached(HISTORY)
    if rows:
        yield "### Goals, and what the last full run of each case reached"
        yield _table(("Case", "Ratio", "To", "Goal", ""), rows)


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def of_kind(profile: Profile) -> str:
    """Return the tables of one kind of request."""
    rows = [(step, f"{took:.1f}", f"{100 * took / profile.whole:.0f} %") for step, took in _rows(profile)]
    rows.append(("**all**", f"**{profile.whole:.1f}**", ""))
    return "\n\n".join([_table(("Step", "µs", "Share"), rows), *_of_functions(profile)])


def with_figures(page: str, shown: str) -> str:
    """Return a page with other figures between its two marks; raises `ValueError` when they are not there."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{shown}\n\n{END}{after}"


def main() -> int:
    """Measure and show; the exit code is 1 if something could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.where", description="Where the time of a request goes.")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"some of {', '.join(KINDS_BY_NAME)}")
    parser.add_argument("--quick", action="store_true", help="shorter: shares are rough")
    parser.add_argument("--write", action="store_true", help=f"write the figures into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--folder", type=Path, default=ROOT, help="where data folders are made: the disk to measure")
    chosen = parser.parse_args()
    if unknown := [each for each in chosen.kinds if each not in KINDS_BY_NAME]:
        parser.error(f"no kind {unknown[0]!r}; there are {', '.join(KINDS_BY_NAME)}")
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=chosen.folder) as folder:
        bench = Bench(QUICK if chosen.quick else FULL, Path(folder))
        seconds = QUICK_SECONDS if chosen.quick else SECONDS
        try:
            if chosen.kinds:
                _show_kinds(bench, chosen.kinds, seconds)
            else:
                _show_all(bench, seconds, write=chosen.write)
        except Failed as error:
            progress(f"  it could not be measured: {error}")
            return 1
    return 0


def _show_kinds(bench: Bench, names: Sequence[str], seconds: float) -> None:
    for name in names:
        profile = of_service(bench, KINDS_BY_NAME[name], seconds)
        print(f"## {profile.kind.title}\n\n{of_kind(profile)}\n\n{profile.draw()}\n")


def _show_all(bench: Bench, seconds: float, *, write: bool) -> None:
    found = find(bench, seconds)
    shown = figures(found)
    print(shown)
    if write:
        PAGE.write_text(with_figures(PAGE.read_text(), shown))
        PICTURE.write_text(found.publish.picture())


if __name__ == "__main__":
    sys.exit(main())
