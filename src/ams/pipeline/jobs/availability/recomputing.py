"""Which days have to be computed: whatever a day stands on has a fingerprint.

The figures of a day follow from the results stored of it and of the two days before, and from the profiles, topology,
downtimes and requests that hold on it. The fingerprint of all these is kept beside the figures, and written last. A day
whose fingerprint has changed is computed anew and replaced whole: after results that came late, after a recomputation
request and after its withdrawal, and after a kill in the middle.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ams.pipeline.jobs.availability.daily import day_before
from ams.pipeline.jobs.availability.inputs import Inputs
from ams.pipeline.jobs.availability.options import Options
from ams.pipeline.jobs.availability.sites import DayInputs
from ams.pipeline.jobs.availability.timelines import DAY
from ams.tables.files import File


@dataclass(frozen=True, slots=True)
class Day:
    """A day to compute."""

    inputs: DayInputs
    eve: DayInputs | None
    """What held on the day before; None if that day has no results."""
    fingerprint: str

    @property
    def date(self) -> str:
        """The day, as `2024-03-05`."""
        return self.inputs.day

    @property
    def regions(self) -> list[tuple[str, str, str]]:
        """The day, group and site of each membership."""
        return [(self.date, region, site) for region, sites in self.inputs.regions.items() for site in sites]

    @property
    def states(self) -> tuple[str, list[str], list[str], str, bool]:
        """Which statuses count as what (`figures.STATES`)."""
        rules = self.inputs.rules
        unknown: list[str] = [rules.defaults.unknown, rules.defaults.missing]
        return self.date, list(rules.available), unknown, rules.defaults.down, self.inputs.until < DAY


def days_of(files: Iterable[File], inputs: Inputs, options: Options, now: int) -> list[Day]:
    """List all days with results, in order.

    A day without a single result of any site is not among them: then it was the monitoring that did not run.
    """
    stored: dict[str, list[File]] = {}
    for file in files:
        stored.setdefault(str(file.partition["date"]), []).append(file)
    return [_day(day, stored, inputs, options, now) for day in sorted(stored)]


def _day(day: str, stored: Mapping[str, Sequence[File]], inputs: Inputs, options: Options, now: int) -> Day:
    here = inputs.on(day, now)
    eve = inputs.on(day_before(day), now) if day_before(day) in stored else None
    data = [_extent(stored.get(day_before(day, back), ())) for back in range(3)]
    print_of = repr((data, here, eve, options.report, options.repeat_hours))
    return Day(here, eve, hashlib.sha256(print_of.encode()).hexdigest())


def _extent(files: Iterable[File]) -> tuple[int, int]:
    """Tell one stage of a table that only grows from another; merging its files does not change it."""
    held = list(files)
    return sum(each.rows for each in held), max((each.batch for each in held if each.batch is not None), default=-1)
