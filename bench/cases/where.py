"""Where the processor time of the hot requests goes: a flame picture of each, as `python -m bench.where` has tables."""

from collections.abc import Iterator

from bench.processes import ROOT
from bench.profiles import KINDS, Profile, of_service
from bench.report import Result, progress
from bench.run import Bench

PICTURES = ROOT / "bench" / "pictures"
LONGER = 2
"""How many times longer than an ordinary measurement is looked: fewer looks would tell little."""


def where(bench: Bench) -> Iterator[Result]:
    """Yield a result for each kind of request, and write its picture."""
    PICTURES.mkdir(exist_ok=True)
    for kind in KINDS:
        progress(f"  {kind.title}")
        profile = of_service(bench, kind, LONGER * bench.plan.seconds)
        (PICTURES / f"{kind.name}.svg").write_text(profile.picture())
        yield _result(profile)
    progress(f"  the pictures are in {PICTURES.relative_to(ROOT)}")


def _result(profile: Profile) -> Result:
    values = {
        "server_us": profile.whole,
        "event_loop_us": profile.loop,
        "other_threads_us": sum(profile.threads.values()),
        "requests_s": profile.requests_per_second,
    }
    return Result("where", {"request": profile.kind.name, "connections": profile.kind.connections}, values)
