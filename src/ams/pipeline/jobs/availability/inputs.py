"""Options of the availability job, and the inputs of a day that follow from them.

Profiles, topology, downtimes and requests come from JSON files, and lists that are not in files from messages. A list
holds until the next date that has one; days before the first date have the first list: topology rarely begins before
monitoring.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.availability import documents
from ams.pipeline.jobs.availability.documents import Place, Profile, ProfileRules, midnight
from ams.pipeline.jobs.availability.parse import Lists, Shape
from ams.pipeline.jobs.availability.timelines import DAY, StatusSpan
from ams.pipeline.jobs.fields import group, in_utf8

T = TypeVar("T")
R = TypeVar("R")
P = TypeVar("P", bound=documents.Period)


class AvailabilityOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
        for name in ("metric_profile", "topology"):
            if not getattr(self, name) and not self.sync_topic:
                raise WrongOption(name, "is needed where no sync_topic tells it")


@dataclass(frozen=True, slots=True)
class DayInputs:
    """Inputs of a day except results. Equal inputs have equal `repr`, also in another process."""

    day: str
    rules: ProfileRules
    sites: Mapping[str, Mapping[Place, str]]  # the endpoints that count, of each site, and the page of each
    overrides: tuple[documents.Override, ...] = ()
    # Excluded monitoring hosts: host, start and end in seconds since 1970, and the status instead of results.
    distrusted: tuple[tuple[str, int, int, str], ...] = ()
    members: tuple[tuple[str, str], ...] = ()  # larger groups and their sites
    until: int = DAY  # the second of the day at which it was looked at; of a day that is over, its end
    eve: "DayInputs | None" = None  # what held on the day before; None if that day has no results

    def endpoints(self, site: str) -> list[Place]:
        """Return the endpoints of a site whose services are in the profiles."""
        return [endpoint for endpoint in self.sites.get(site, {}) if endpoint.service in self.rules.metrics]

    def laid_over(self, site: str, place: Place) -> list[StatusSpan]:
        """Return the spans that replace the measured status of a place."""
        return [each.span for each in self.overrides if each.covers(site, place)]


class Inputs:
    """Lists by date; a list without dates has an empty date. Without rules nothing can be computed."""

    def __init__(self, options: AvailabilityOptions, came: Lists = Lists()) -> None:  # noqa: B008  # never changed
        """Read the files in the options; other lists come from messages. Raises `WrongOption` for a bad file."""
        self.passed_over: list[str] = []  # what is ignored in the files, and why
        profile = options.metric_profile
        services = _single("metric_profile", profile, documents.MetricProfile).services if profile else []
        files = Lists(
            group((each.date, each) for each in _read_list("topology", options.topology, documents.EndpointItem)),
            group((each.date, each) for each in _read_list("groups", options.groups, documents.GroupItem)),
            {"": {each.service: each.metrics for each in services}} if profile else {},
            self._downtimes(options.downtimes) if options.downtimes else {},
        )
        self.lists = Lists._make(file or message for file, message in zip(files, came, strict=True))
        asked = _read_list("recomputations", options.recomputations, documents.RecomputationRequest)
        self.requests = [each for each in self._drop_reversed("recomputations", asked) if each.is_about(options.report)]
        for request in self.requests:
            hosts = (each.host for each in request.exclude_monitoring_source if each.is_reversed)
            self.passed_over += [f"recomputations: {host} is excluded until before it is excluded" for host in hosts]
        self.sites = {date: documents.sites_of(items) for date, items in self.lists.endpoints.items()}
        self.rules = _rules(options, self.lists.profiles)

    @property
    def unfit(self) -> list[str]:
        """Dates of metric profiles from messages without any counting metric; they are ignored."""
        return sorted(self.lists.profiles.keys() - self.rules.keys())

    def on(self, day: str, now: int, eve: DayInputs | None = None) -> DayInputs:
        """Return the inputs of a day, as of `now` in seconds since 1970."""
        rules = in_force(self.rules, day)
        assert rules is not None
        begin, unknown = midnight(day), rules.defaults.unknown
        over = documents.overrides(day, in_force(self.lists.downtimes, day) or (), self.requests, rules.defaults)
        hosts = (
            (each.host, documents.moment(each.start_time), documents.moment(each.end_time), unknown)
            for request in self.requests
            for each in request.exclude_monitoring_source
        )
        overrides = tuple(each for each in over if each.span.start < DAY and each.span.end > 0)
        # Statuses of the day before carry over into the day.
        distrusted = tuple(each for each in hosts if each[1] < begin + DAY and each[2] > begin - DAY)
        members = tuple(sorted({(each.group, each.subgroup) for each in in_force(self.lists.groups, day) or ()}))
        sites, until = in_force(self.sites, day) or {}, min(max(now - begin, 0), DAY)
        return DayInputs(day, rules, sites, overrides, distrusted, members, until, eve)

    def _downtimes(self, file: str) -> dict[str, list[documents.Downtime]]:
        found = _load("downtimes", file, lambda found: found)
        if not isinstance(found, list) or not any(isinstance(each, dict) and "endpoints" in each for each in found):
            return {"": self._drop_reversed("downtimes", _read_list("downtimes", file, documents.Downtime))}
        held: dict[str, list[documents.Downtime]] = {}
        for each in _read_list("downtimes", file, documents.DowntimesOfDate):
            held.setdefault(each.date, []).extend(self._drop_reversed("downtimes", each.endpoints or []))
        return held

    def _drop_reversed(self, option: str, times: Iterable[P]) -> list[P]:
        held = []
        for number, each in enumerate(times):
            if each.is_reversed:
                self.passed_over.append(f"{option}: item {number} ends at {each.end_time}, before it starts")
            else:
                held.append(each)
        return held


def in_force(known: Mapping[str, T], day: str) -> T | None:
    """Return the list of the last date up to a day, else of the first date; None without lists."""
    dates = sorted(known)
    return known[dates[max(bisect_right(dates, day) - 1, 0)]] if dates else None


def day_before(day: str, days: int = 1) -> str:
    """Return the date `days` earlier, as `2024-03-05`."""
    return (date.fromisoformat(day) - timedelta(days=days)).isoformat()


def _rules(options: AvailabilityOptions, profiles: Mapping[str, Profile]) -> dict[str, ProfileRules]:
    """Return rules by metric profile; bad profiles from messages are left out, and never end a run."""
    aggregation = _single("aggregation_profile", options.aggregation_profile, documents.AggregationProfile)
    option, operations = "aggregation_profile", documents.OperationsProfile()
    if options.operations_profile:
        option = "operations_profile"
        operations = _single(option, options.operations_profile, documents.OperationsProfile)
    try:
        found = {day: ProfileRules.of(profile, aggregation, operations) for day, profile in profiles.items()}
    except ValueError as error:
        raise WrongOption(option, str(error)) from error
    counting = {day: rules for day, rules in found.items() if rules.metrics}
    if options.metric_profile and not counting:
        raise WrongOption(option, "no service is both in the metric profile and in a group of the aggregation profile")
    return counting


def _read_list(option: str, file: str, item: type[T]) -> list[T]:
    # mypy does not support run-time types
    kind = list[item]  # type: ignore[valid-type]
    return _load(option, file, lambda found: _fit(found if isinstance(found, list) else [found], kind)) if file else []


def _single(option: str, file: str, item: type[T]) -> T:
    def fit(found: Any) -> T:
        alone = found if isinstance(found, list) else [found]
        if len(alone) != 1:
            raise ValueError(f"one profile is needed, not {len(alone)}")
        return _fit(alone[0], item)

    if not file:
        raise WrongOption(option, "is needed: the path of a JSON file")
    return _load(option, file, fit)


def _fit(found: Any, kind: type[T]) -> T:
    unknown = documents.unknown_field(kind, found)
    if unknown:
        raise ValueError(f"unknown field - at `{unknown}`")
    return msgspec.convert(found, kind)


def _load(option: str, file: str, fit: Callable[[Any], R]) -> R:
    """Read a JSON file, or the `data` or `root` of an answer of the monitoring API."""
    try:
        found = msgspec.json.decode(in_utf8(Path(file).read_bytes()))
        answer = next((name for name in ("data", "root") if isinstance(found, dict) and name in found), None)
        return fit(found[answer] if answer else found)
    except OSError as error:
        raise WrongOption(option, f"{file}: {error.strerror or error}") from error
    except ValueError as error:
        raise WrongOption(option, f"{file}: {error}") from error
