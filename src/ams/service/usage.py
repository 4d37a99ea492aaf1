"""What was published and made in a window of days, project by project: for operators and project administrators.

Source: HTTP contract 14.4, va_metrics and usageReport, in the wanted form of 17.4 (O3, O4).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

from ams.access.admission import Admission, is_good_for
from ams.access.roles import PROJECT_ADMIN
from ams.core.clock import Clock, day_of, day_text
from ams.core.errors import InvalidInput, NotAuthenticated, NotFound
from ams.core.names import ProjectName
from ams.service.counting import Counting
from ams.service.metrics import Metric, node_metrics
from ams.storage.registry.figures import Activity
from ams.storage.registry.records import Principal, Project
from ams.storage.registry.registry import Registry

EPOCH = date(1970, 1, 1)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Window(NamedTuple):
    """Days, both included."""

    first: date
    last: date

    @property
    def days(self) -> int:
        """How many."""
        return (self.last - self.first).days + 1


class ProjectUsage(NamedTuple):
    """What happened in one project."""

    project: ProjectName
    activity: Activity
    average: float
    """Messages a day, rounded up to two decimals."""


class Report(NamedTuple):
    """What happened, and for a project administrator how the node is."""

    projects: Sequence[ProjectUsage]
    operational: Sequence[Metric]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tells what projects are used for."""

    registry: Registry
    counting: Counting
    admission: Admission
    clock: Clock

    async def va_metrics(self, start: str, end: str, projects: str) -> list[ProjectUsage]:
        """Return the usage of the projects named, separated by commas; of all when none is named.

        Raises `InvalidInput` for a bad date or window, then `NotFound` "Project X doesn't exist".
        """
        window = self._window(start, end)
        known = await self.registry.projects.all()
        return await self._usage(window, _named(known, projects) if projects else known)

    async def report(self, token: str | None, start: str, end: str, projects: str) -> Report:
        """Return the usage of those projects that the token's user administers, of those named when some are.

        Raises `NotAuthenticated` for a missing or unknown token, then `InvalidInput` for a bad date or window.
        """
        user = await self.admission.principal(token)
        if user is None:
            raise NotAuthenticated
        window = self._window(start, end)
        names = set(projects.split(",")) if projects else None
        administered = [
            each
            for each in await self.registry.projects.all()
            if _administers(user, each) and (names is None or each.name in names)
        ]
        if not administered:
            return Report([], [])
        return Report(await self._usage(window, administered), node_metrics(self.clock))

    async def _usage(self, window: Window, projects: Sequence[Project]) -> list[ProjectUsage]:
        found = await self.counting.activity(window.first, window.last)
        return [_used(each.name, found.get(each.id, Activity()), window.days) for each in projects]

    def _window(self, start: str, end: str) -> Window:
        today = date.fromisoformat(day_text(day_of(self.clock.wall())))
        first = _date(start, EPOCH, "Start date is not in valid format")
        last = _date(end, today, "End date is not in valid format")
        if first > last:
            raise InvalidInput("Start date cannot be after the end date")
        return Window(first, last)


def average(messages: int, days: int) -> float:
    """Return messages a day, rounded up to two decimals (contract 14.4).

    >>> average(120, 31)
    3.88
    """
    return -(-messages * 100 // days) / 100


def total_average(projects: Sequence[ProjectUsage]) -> float:
    """Return the sum of the rounded averages, itself without the errors of adding fractions."""
    return sum(round(each.average * 100) for each in projects) / 100


def _administers(user: Principal, project: Project) -> bool:
    """Whether somebody administers a project, by a login that is good for asking what it is used for."""
    is_good = user.login is None or is_good_for(user.login, "users:usageReport", {"project": project.name})
    return is_good and PROJECT_ADMIN in user.project_roles.get(project.id, ())


def _date(text: str, absent: date, refusal: str) -> date:
    """Read `YYYY-MM-DD` and nothing else; raise `InvalidInput`."""
    if not text:
        return absent
    if not _DATE.fullmatch(text):
        raise InvalidInput(refusal)
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInput(refusal) from None


def _used(project: ProjectName, activity: Activity, days: int) -> ProjectUsage:
    return ProjectUsage(project, activity, average(activity.messages, days))


def _named(known: Sequence[Project], names: str) -> list[Project]:
    by_name: dict[str, Project] = {each.name: each for each in known}
    found = []
    for name in dict.fromkeys(names.split(",")):
        if name not in by_name:
            raise NotFound(f"Project {name} doesn't exist")
        found.append(by_name[name])
    return found
