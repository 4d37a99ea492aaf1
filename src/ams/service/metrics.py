"""Metrics of the node, projects, topics and subscriptions (HTTP contract 14.1 to 14.4).

A metric is a name below its kind of resource, and a series of points. Asking changes nothing (17.4, O1).
"""

import os
import re
import resource
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial

from ams.access.admission import Admission, Caller, is_good_for
from ams.access.permissions import CONSUMER, PROJECT_ADMIN, PUBLISHER
from ams.core.clock import Clock, day_of, day_text, resource_date
from ams.core.errors import InvalidInput, NotAuthenticated, NotFound, SubscriptionGone, TopicGone, refuse_if
from ams.core.names import SubscriptionName, TopicName
from ams.service.lookup import require_found
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.retention import Losses, age_of
from ams.service.tallies import Counting
from ams.storage.registry.counts import Activity, Listed, Rate
from ams.storage.registry.records import NO_USERS, Project, Subscription
from ams.storage.registry.registry import Registry
from ams.wire import service as wire
from ams.wire.service import Metric, Point, ProjectsUsage, ProjectUsage, UsageReport, VaMetrics

COUNTER, RATE, PERCENTAGE, GAUGE = "counter", "rate", "percentage", "gauge"
NEVER = "0001-01-01T00:00:00Z"  # timestamp of a rate without any publish or pull (contract 14.2)
RATE_DIGITS = 6  # of a rate, from its first one: a third of a message a second is 0.333333
MIN_INTERVAL_SECONDS = 0.001  # a clock that stepped back must not make a rate negative (O5)


def _metric(
    resource_type: str, resource: str, name: str, points: Point | Sequence[Point], text: str, kind: str = COUNTER
) -> Metric:
    series = [points] if isinstance(points, Point) else points
    return Metric(
        metric=f"{resource_type}.{name}", metric_type=kind, resource_type=resource_type, resource_name=resource,
        value_type="int64" if kind in (COUNTER, GAUGE) else "float64", timeseries=series, description=text,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metrics:
    """Returns metrics, and the usage of projects."""

    registry: Registry
    counting: Counting
    losses: Losses
    clock: Clock
    admission: Admission
    working: ParallelSubscriptions | None = None

    async def node(self) -> list[Metric]:
        """Return what this node takes of its machine (contract 14.4)."""
        now, of_node = self._now(), partial(_metric, "ams_node", socket.gethostname(), kind=PERCENTAGE)
        cpu = Point(now, _percent(time.process_time() - _WORKED, time.monotonic() - _STARTED))
        memory = Point(now, memory_percent())
        return [
            of_node("cpu_usage", cpu, "Share of a core the service had since it started, in percent."),
            of_node("memory_usage", memory, "Share of the machine's memory the service holds, in percent."),
        ]

    async def project(self, caller: Caller) -> list[Metric]:
        """Return the metrics of the project of the path."""
        name, now = caller.here.name, self._now()
        figures = await self.registry.figures.of_project(caller.here.id)
        days = await self.counting.project_days(caller.here.id)
        of_project = partial(_metric, "project", name)

        def of_users(what: str, listed: Listed, text: str) -> list[Metric]:
            return [_metric("project.user", f"{name}.{user}", what, Point(now, count), text) for user, count in listed]

        return [
            of_project("number_of_topics", Point(now, figures.topics), "Topics of the project."),
            of_project("number_of_subscriptions", Point(now, figures.subscriptions), "Subscriptions of the project."),
            *of_users("number_of_topics", figures.on_topics, "Topics whose access list holds the user."),
            *of_users(
                "number_of_subscriptions", figures.on_subscriptions, "Subscriptions whose access list holds the user."
            ),
            of_project("number_of_daily_messages", _daily(days), "Messages published per day to all topics."),
        ]

    async def topic(self, caller: Caller, name: TopicName) -> list[Metric]:
        """Return the metrics of a topic; raise `NotAllowed` outside its access list, then `NotFound`."""
        topic = await self.registry.topics.find(caller.here.id, name)
        caller.require_listed(topic.authorized if topic else NO_USERS, PUBLISHER)
        topic = require_found(topic, TopicGone)
        subscriptions = await self.registry.figures.subscriptions_of(topic.project_id, name)
        tally, days = await self.counting.topic(topic)
        now, of_topic = self._now(), partial(_metric, "topic", name)
        return [
            of_topic("number_of_subscriptions", Point(now, subscriptions), "Subscriptions of the topic."),
            of_topic("number_of_messages", Point(now, tally.messages), "Messages ever published to the topic."),
            of_topic("number_of_bytes", Point(now, tally.bytes), "Bytes of data ever published to the topic."),
            of_topic("number_of_daily_messages", _daily(days), "Messages published per day to the topic."),
            of_topic("publishing_rate", rate(tally.rate), "Messages per second of the last publish.", RATE),
        ]

    async def subscription(self, caller: Caller, name: SubscriptionName) -> list[Metric]:
        """Return the metrics of a subscription; raise `NotAllowed` outside its access list, then `NotFound`."""
        subscription = await self.registry.subscriptions.find(caller.here.id, name)
        caller.require_listed(subscription.authorized if subscription else NO_USERS, CONSUMER)
        subscription = require_found(subscription, SubscriptionGone)
        tally = await self.counting.subscription(subscription.id)
        lost = 0 if subscription.is_detached else await self.losses.of(subscription)
        of_parallel = await self._parallel_metrics(subscription)
        lost_text = "Messages retention took before they were acknowledged."
        now, of_subscription = self._now(), partial(_metric, "subscription", name)
        return [
            of_subscription("number_of_messages", Point(now, tally.messages), "Messages handed out, with repeats."),
            of_subscription("number_of_bytes", Point(now, tally.bytes), "Bytes of data handed out, with repeats."),
            of_subscription("consumption_rate", rate(tally.rate), "Messages per second of the last pull.", RATE),
            # Ours, and at the end: clients that read the reference's metrics by position still find them.
            of_subscription("number_of_lost_messages", Point(now, lost), lost_text),
            *[of_subscription(each, Point(now, value), text, kind) for each, value, text, kind in of_parallel],
        ]

    async def va_metrics(self, start: str, end: str, projects: str) -> VaMetrics:
        """Return the usage of projects, named with commas between, or of all; raise `InvalidInput`, then `NotFound`."""
        first, last = self._window(start, end)
        known = await self.registry.projects.all()
        if projects:
            by_name = {str(each.name): each for each in known}
            names = list(dict.fromkeys(projects.split(",")))
            for name in names:
                if name not in by_name:
                    raise NotFound(f"Project {name} doesn't exist")
            known = [by_name[name] for name in names]
        return await self._usage(first, last, known)

    async def usage_report(self, token: str | None, start: str, end: str, projects: str) -> UsageReport:
        """Return the usage of projects that the token's user administers; raise `NotAuthenticated`, `InvalidInput`."""
        user = require_found(await self.admission.principal(token), NotAuthenticated)
        first, last = self._window(start, end)
        names = set(projects.split(",")) if projects else None
        administered = [
            each
            for each in await self.registry.projects.all()
            if (names is None or each.name in names)
            and (user.login is None or is_good_for(user.login, "users:usageReport", {"project": each.name}))
            and PROJECT_ADMIN in user.project_roles.get(each.id, ())
        ]
        if not administered:
            return UsageReport(_va_metrics([]), wire.Metrics([]))
        return UsageReport(await self._usage(first, last, administered), wire.Metrics(await self.node()))

    async def _usage(self, first: date, last: date, projects: Sequence[Project]) -> VaMetrics:
        found, days, usages = await self.counting.activity(first, last), (last - first).days + 1, []
        for project in projects:
            messages, *counts = found.get(project.id, Activity())
            usages.append(ProjectUsage(project.name, messages, average(messages, days), *counts))
        return _va_metrics(usages)

    def _window(self, start: str, end: str) -> tuple[date, date]:
        today = date.fromisoformat(day_text(day_of(self.clock.wall())))
        first = _date(start, date(1970, 1, 1), "Start date is not in valid format")
        last = _date(end, today, "End date is not in valid format")
        refuse_if(first > last, "Start date cannot be after the end date")
        return first, last

    async def _parallel_metrics(self, subscription: Subscription) -> Sequence[tuple[str, int, str, str]]:
        if subscription.parallel is None or subscription.is_detached or self.working is None:
            return ()
        opened = await self.working.opened.here(subscription.id)
        if opened is None:
            return ()
        age = (await age_of(self.losses.log, opened.topic, opened.backlog.done.floor, self.clock) or 0) // 1000
        backlog, blocked = opened.backlog, opened.backlog.keys.blocked_messages
        return [
            ("oldest_message_seconds", age, "Age of the oldest message that is not acknowledged.", GAUGE),
            ("number_of_leased_messages", len(backlog.leases), "Messages that consumers have on lease.", GAUGE),
            ("number_of_waiting_messages", backlog.waiting, "Messages that failed and are to be given again.", GAUGE),
            ("number_of_blocked_messages", blocked, "Messages blocked by one of their ordering key.", GAUGE),
            ("number_of_failures", opened.failures, "Deliveries that failed since this node works on it.", COUNTER),
            ("number_of_dead_letters", opened.dead_letters, "Messages put aside since then.", COUNTER),
        ]

    def _now(self) -> str:
        return resource_date(self.clock.wall())


def rate(made_of: Rate) -> Point:
    """Return messages of the last request per second since the one before; of the first per 1 s (contract 14.2)."""
    if made_of.last is None:
        return Point(NEVER, 0.0)
    seconds = 1.0 if made_of.before is None else max((made_of.last - made_of.before) / 1000, MIN_INTERVAL_SECONDS)
    return Point(resource_date(made_of.last), float(f"{made_of.messages / seconds:.{RATE_DIGITS}g}"))


def _daily(days: Mapping[str, int]) -> list[Point]:
    return [Point(day, messages) for day, messages in days.items()]


def average(messages: int, days: int) -> float:
    """Return messages a day, rounded up to two decimals (contract 14.4).

    >>> average(120, 31)
    3.88
    """
    return -(-messages * 100 // days) / 100


def _date(text: str, absent: date, refusal: str) -> date:
    if not text:
        return absent
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise InvalidInput(refusal)


def _va_metrics(projects: Sequence[ProjectUsage]) -> VaMetrics:
    # without the errors of adding fractions
    average_daily_messages = sum(round(each.average_daily_messages * 100) for each in projects) / 100
    return VaMetrics(
        ProjectsUsage(projects, sum(each.message_count for each in projects), average_daily_messages),
        total_users_count=sum(each.users_count for each in projects),
        total_topics_count=sum(each.topics_count for each in projects),
        total_subscriptions_count=sum(each.subscriptions_count for each in projects),
    )


_STARTED, _WORKED = time.monotonic(), time.process_time()


def memory_percent() -> float:
    """Return the share of the machine's memory this process holds, in percent; 0 if the kernel does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # the most there ever were
    try:
        return _percent(resident, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError):
        return 0.0


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole > 0 else 0.0
