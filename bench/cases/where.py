"""Where the processor time of the hot requests goes: a flame picture of each, as `python -m bench.where` has tables."""

from collections.abc import Iterator

from bench.profiles import KINDS, Profile, of_service
from bench.report import Result, progress
from bench.run import Bench

LONGER = 2
"""How many times longer than an ordinary measurement is looked: fewer looks would tell little."""


def where(bench: Bench) -> Iterator[Result]:
    """Yield a result for each kind of request, and write its picture."""
    for kind in KINDS:
        progress(f"  {kind.title}")
        profile = of_service(bench, kind, LONGER * bench.plan.seconds)
        progress(f"  {profile.draw()}")
        yield _result(profile)


def _result(profile: Profile) -> Result:
    values = {
        "server_us": profile.whole,
        "event_loop_us": profile.loop,
        "other_threads_us": sum(profile.threads.values()),
        "worker_processes_us": profile.started,
        "requests_s": profile.requests_per_second,
    }
    return Result("where", {"request": profile.kind.name, "connections": profile.kind.connections}, values)
