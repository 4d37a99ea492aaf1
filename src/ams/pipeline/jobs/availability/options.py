"""What can be said to the availability job."""

from typing import Annotated

import msgspec

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.availability.results import Shape


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the availability job; paths are of JSON files."""

    aggregation_profile: str
    """The aggregation profile: how metrics, endpoints, services and groups come together."""
    topic: str = "metric_data"
    """The topic with monitoring results."""
    shape: Shape = "current"
    """Which Avro schema the results are written with: `current`, `without_actual_data` or `actual_data_last`."""
    sync_topic: str = ""
    """A topic with the topology, the metric profile and the downtimes of each day; a file comes before it."""
    report: str = "Default"
    """The report's name: it stands in every figure and event, and recomputation requests may be about it."""
    metric_profile: str = ""
    """The metric profile: which metrics of which services count. Needed without `sync_topic`."""
    operations_profile: str = ""
    """The operations profile; without one, AND is the worst and OR the best status in the usual orders."""
    topology: str = ""
    """The endpoints of the sites. Needed without `sync_topic`."""
    groups: str = ""
    """Which sites belong to which larger group; without it there are no figures of larger groups."""
    downtimes: str = ""
    """The announced downtimes."""
    recomputations: str = ""
    """The recomputation requests."""
    repeat_hours: Annotated[int, msgspec.Meta(ge=1, le=24)] = 24
    """After how many hours of a bad status an event is repeated."""
    batch_messages: Annotated[int, msgspec.Meta(ge=1)] = 200_000
    """Messages a batch at most."""
    events_topic: str = ""
    """A topic that status events are published to, each once; without it they are only written to the table."""

    def __post_init__(self) -> None:
        """Refuse options that leave open what is monitored."""
        for name in ("metric_profile", "topology"):
            if not getattr(self, name) and not self.sync_topic:
                raise WrongOption(name, "is needed where no sync_topic tells it")
