"""What is monitored: the endpoints of each site, and which sites belong together."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec


class Endpoint(NamedTuple):
    """A service on a host."""

    service: str
    hostname: str


class Tags(msgspec.Struct, frozen=True):
    """The tags of an endpoint that this computation reads."""

    monitored: str = ""
    production: str = ""
    info_url: str = msgspec.field(name="info_URL", default="")


class EndpointItem(msgspec.Struct, frozen=True):
    """An endpoint of a site, as the topology lists it."""

    group: str
    service: str
    hostname: str
    date: str = ""
    """Since which day, `2024-03-05`; items without one hold from ever on."""
    type: str = "SITES"
    tags: Tags = Tags()

    @property
    def counts(self) -> bool:
        """Whether it is monitored and in production."""
        return self.tags.monitored == self.tags.production == "1"


class GroupItem(msgspec.Struct, frozen=True):
    """A site as part of a larger group."""

    group: str
    subgroup: str
    date: str = ""
    type: str = "NGI"


Sites = Mapping[str, Mapping[Endpoint, str]]
"""The endpoints that count, of each site, sorted, each with its page, which may be empty."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The topology on each day.

    The items of one date are a whole list, which holds until the next date that has items. Days before the first date
    have the first list: the topology of a place rarely begins before its monitoring does.
    """

    endpoints: tuple[EndpointItem, ...]
    groups: tuple[GroupItem, ...] = ()
    _known: dict[str, Sites] = field(default_factory=dict, repr=False, compare=False)

    def sites(self, day: str) -> Sites:
        """Return the endpoints that count on a day."""
        date = in_force((item.date for item in self.endpoints), day)
        if date not in self._known:
            self._known[date] = _sites(item for item in self.endpoints if item.date == date and item.counts)
        return self._known[date]

    def regions(self, day: str) -> Mapping[str, tuple[str, ...]]:
        """Return the sites of each larger group on a day, sorted."""
        date = in_force((item.date for item in self.groups), day)
        held: dict[str, set[str]] = {}
        for item in self.groups:
            if item.date == date:
                held.setdefault(item.group, set()).add(item.subgroup)
        return {group: tuple(sorted(sites)) for group, sites in sorted(held.items())}


def in_force(dates: Iterable[str], day: str) -> str:
    """Return the last of the dates that is not after a day, else the first of them; empty if there is none."""
    known = sorted(set(dates))
    place = bisect_right(known, day)
    return known[max(place - 1, 0)] if known else ""


def _sites(items: Iterable[EndpointItem]) -> Sites:
    held: dict[str, dict[Endpoint, str]] = {}
    for item in items:
        held.setdefault(item.group, {})[Endpoint(item.service, item.hostname)] = item.tags.info_url
    return {site: dict(sorted(endpoints.items())) for site, endpoints in sorted(held.items())}
