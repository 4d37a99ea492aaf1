"""All that availability is computed from apart from results: profiles, topology, downtimes, requests, day by day.

It comes from files, and what is not in files from messages. A list of a date holds until the next date that has one;
days before the first date have the first list.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.availability.documents import listed, moment, single
from ams.pipeline.jobs.availability.exceptions import Downtime, Exceptions, Request
from ams.pipeline.jobs.availability.options import Options
from ams.pipeline.jobs.availability.profiles import MetricProfile, NothingCounts, Operations, Rules
from ams.pipeline.jobs.availability.sites import DayInputs
from ams.pipeline.jobs.availability.synced import Lists
from ams.pipeline.jobs.availability.timelines import DAY
from ams.pipeline.jobs.availability.topology import EndpointItem, GroupItem, Topology, in_force


@dataclass(frozen=True, slots=True)
class Inputs:
    """What is known. With no rules at all, nothing can be computed yet."""

    rules: Mapping[str, Rules]
    """By date; of a profile in a file the date is empty."""
    topology: Topology
    downtimes: Mapping[str, tuple[Downtime, ...]]
    """By date, as the rules."""
    requests: tuple[Request, ...]
    report: str
    unfit: tuple[str, ...] = ()
    """Dates of metric profiles that came in messages and of which nothing counts: they are passed over."""

    def on(self, day: str, now: int) -> DayInputs:
        """Return what holds on a day, looked at at a time in seconds since 1970."""
        over = now - moment(f"{day}T00:00:00Z")
        downtimes = self.downtimes.get(in_force(self.downtimes, day), ())
        return DayInputs(
            day,
            self.rules[in_force(self.rules, day)],
            self.topology.sites(day),
            Exceptions.of(downtimes, self.requests, self.report).about(day),
            self.topology.regions(day),
            until=min(max(over, 0), DAY),
        )


def inputs(options: Options, came: Lists = Lists()) -> Inputs:  # noqa: B008  # a value that never changes
    """Read the files that the options name, and take what they do not say from what came in messages.

    Raises:
        WrongOption: a file cannot be used; names the option, the file and the field.
    """
    operations, unfit = Operations.read(options), set[str]()
    if options.metric_profile or not options.sync_topic:
        rules = {"": operations.rules(single("metric_profile", options.metric_profile, MetricProfile))}
    else:
        rules = _fitting(operations, came.profiles)
        unfit = came.profiles.keys() - rules.keys()
    endpoints = tuple(listed("topology", options.topology, EndpointItem)) or came.endpoints
    groups = tuple(listed("groups", options.groups, GroupItem)) or came.groups
    downtimes: Mapping[str, tuple[Downtime, ...]] = came.downtimes
    if options.downtimes:
        downtimes = {"": tuple(listed("downtimes", options.downtimes, Downtime))}
    return Inputs(
        rules,
        Topology(endpoints, groups),
        downtimes,
        tuple(listed("recomputations", options.recomputations, Request)),
        options.report,
        tuple(sorted(unfit)),
    )


def _fitting(operations: Operations, profiles: Mapping[str, MetricProfile]) -> dict[str, Rules]:
    """Return the rules of each day's profile, of those of which something counts: a message ends no run."""
    found = {}
    for day, profile in profiles.items():
        try:
            found[day] = operations.rules(profile)
        except WrongOption as error:
            if not isinstance(error.__cause__, NothingCounts):
                raise
    return found
