"""All that availability is computed from apart from results: profiles, topology, downtimes, requests, day by day."""

from dataclasses import dataclass

from ams.pipeline.jobs.availability.documents import listed, moment
from ams.pipeline.jobs.availability.exceptions import Downtime, Exceptions, Request
from ams.pipeline.jobs.availability.options import Options
from ams.pipeline.jobs.availability.profiles import Rules, rules
from ams.pipeline.jobs.availability.sites import DayInputs
from ams.pipeline.jobs.availability.timelines import DAY
from ams.pipeline.jobs.availability.topology import EndpointItem, GroupItem, Topology


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the files say."""

    rules: Rules
    topology: Topology
    exceptions: Exceptions

    def on(self, day: str, now: int) -> DayInputs:
        """Return what holds on a day, looked at at a time in seconds since 1970."""
        over = now - moment(f"{day}T00:00:00Z")
        return DayInputs(
            day,
            self.rules,
            self.topology.sites(day),
            self.exceptions.about(day),
            self.topology.regions(day),
            until=min(max(over, 0), DAY),
        )


def inputs(options: Options) -> Inputs:
    """Read the files that the options name.

    Raises:
        WrongOption: a file cannot be used; names the option, the file and the field.
    """
    return Inputs(
        rules(options.metric_profile, options.aggregation_profile, options.operations_profile),
        Topology(
            tuple(listed("topology", options.topology, EndpointItem)),
            tuple(listed("groups", options.groups, GroupItem)),
        ),
        Exceptions.of(
            listed("downtimes", options.downtimes, Downtime),
            listed("recomputations", options.recomputations, Request),
            options.report,
        ),
    )
