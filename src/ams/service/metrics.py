"""Metrics of the node, projects, topics and subscriptions (HTTP contract 14.1 to 14.4).

A metric is a name below its kind of resource, and a series of points. Asking changes nothing (17.4, O1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ams.access.admission import Caller
from ams.access.roles import CONSUMER, PUBLISHER
from ams.core.clock import Clock, Milliseconds, resource_date
from ams.core.errors import SubscriptionGone, TopicGone
from ams.core.names import SubscriptionName, TopicName
from ams.service.counting import Counting
from ams.service.losses import Losses
from ams.service.node import cpu_percent, host_name, memory_percent
from ams.storage.registry.figures import Listed
from ams.storage.registry.records import NOBODY
from ams.storage.registry.registry import Registry
from ams.storage.registry.tallies import Rate

COUNTER, RATE, PERCENTAGE = "counter", "rate", "percentage"
NEVER = "0001-01-01T00:00:00Z"
"""Timestamp of a rate when nothing was ever published or pulled (contract 14.2)."""
DIGITS = 6
"""Of a rate, from its first one: a third of a message a second is 0.333333."""
LEAST_INTERVAL = 0.001
"""Seconds; publish times are whole milliseconds, and a clock that stepped back must not make a rate negative (O5)."""


class Point(NamedTuple):
    """A value and when it held: a moment, or a day."""

    timestamp: str
    value: float


class Metric(NamedTuple):
    """One metric of one resource."""

    resource: str
    """Kind of resource: `topic`, `project.user` ..."""
    resource_name: str
    name: str
    """What it is called below its kind of resource."""
    kind: str
    """COUNTER, RATE or PERCENTAGE."""
    points: Sequence[Point]
    description: str


@dataclass(frozen=True, slots=True)
class Metrics:
    """Tells metrics."""

    registry: Registry
    counting: Counting
    losses: Losses
    clock: Clock

    async def node(self) -> list[Metric]:
        """Return what this node takes of its machine."""
        return node_metrics(self.clock)

    async def project(self, caller: Caller) -> list[Metric]:
        """Return the metrics of the project of the path."""
        name, now = caller.here.name, self._now()
        figures = await self.registry.figures.of_project(caller.here.id)
        days = await self.counting.project_days(caller.here.id)

        def of_project(what: str, points: Sequence[Point], text: str) -> Metric:
            return Metric("project", name, what, COUNTER, points, text)

        def of_users(what: str, listed: Listed, text: str) -> list[Metric]:
            return [
                Metric("project.user", f"{name}.{user}", what, COUNTER, [Point(now, count)], text)
                for user, count in listed
            ]

        return [
            of_project("number_of_topics", [Point(now, figures.topics)], "Topics of the project."),
            of_project("number_of_subscriptions", [Point(now, figures.subscriptions)], "Subscriptions of the project."),
            *of_users("number_of_topics", figures.on_topics, "Topics whose access list holds the user."),
            *of_users(
                "number_of_subscriptions", figures.on_subscriptions, "Subscriptions whose access list holds the user."
            ),
            of_project("number_of_daily_messages", _daily(days), "Messages published per day to all topics."),
        ]

    async def topic(self, caller: Caller, name: TopicName) -> list[Metric]:
        """Return the metrics of a topic.

        Raises `NotAllowed` for a publisher who is not on the access list, also of a topic that does not exist, then
        `NotFound`.
        """
        topic = await self.registry.topics.find(caller.here.id, name)
        caller.require_listed(topic.authorized if topic else NOBODY, PUBLISHER)
        if topic is None:
            raise TopicGone
        subscriptions = await self.registry.figures.subscriptions_of(topic.project_id, name)
        tally, days = await self.counting.topic(topic)
        now = self._now()

        def of_topic(what: str, points: Sequence[Point], text: str, kind: str = COUNTER) -> Metric:
            return Metric("topic", name, what, kind, points, text)

        return [
            of_topic("number_of_subscriptions", [Point(now, subscriptions)], "Subscriptions of the topic."),
            of_topic("number_of_messages", [Point(now, tally.messages)], "Messages ever published to the topic."),
            of_topic("number_of_bytes", [Point(now, tally.bytes)], "Bytes of data ever published to the topic."),
            of_topic("number_of_daily_messages", _daily(days), "Messages published per day to the topic."),
            of_topic("publishing_rate", [rate(tally.rate)], "Messages per second of the last publish.", RATE),
        ]

    async def subscription(self, caller: Caller, name: SubscriptionName) -> list[Metric]:
        """Return the metrics of a subscription.

        Raises `NotAllowed` for a consumer who is not on the access list, also of a subscription that does not exist,
        then `NotFound`.
        """
        subscription = await self.registry.subscriptions.find(caller.here.id, name)
        caller.require_listed(subscription.authorized if subscription else NOBODY, CONSUMER)
        if subscription is None:
            raise SubscriptionGone
        tally = await self.counting.subscription(subscription.id)
        lost = await self.losses.of(subscription)
        now = self._now()

        def of_subscription(what: str, point: Point, text: str, kind: str = COUNTER) -> Metric:
            return Metric("subscription", name, what, kind, [point], text)

        return [
            of_subscription("number_of_messages", Point(now, tally.messages), "Messages handed out, with repeats."),
            of_subscription("number_of_bytes", Point(now, tally.bytes), "Bytes of data handed out, with repeats."),
            of_subscription("consumption_rate", rate(tally.rate), "Messages per second of the last pull.", RATE),
            # Ours, and at the end: nobody who reads the reference's by place is led astray.
            of_subscription(
                "number_of_lost_messages", Point(now, lost), "Messages retention took before they were acknowledged."
            ),
        ]

    def _now(self) -> str:
        return resource_date(self.clock.wall())


def node_metrics(clock: Clock) -> list[Metric]:
    """Return what this node takes of its machine (contract 14.4)."""
    now, host = resource_date(clock.wall()), host_name()

    def of_node(what: str, value: float, text: str) -> Metric:
        return Metric("ams_node", host, what, PERCENTAGE, [Point(now, value)], text)

    return [
        of_node("cpu_usage", cpu_percent(), "Share of a core the service had since it started, in percent."),
        of_node("memory_usage", memory_percent(), "Share of the machine's memory the service holds, in percent."),
    ]


def rate(made_of: Rate) -> Point:
    """Return messages of the last request by the seconds since the one before; by 1 for the first (contract 14.2)."""
    if made_of.last is None:
        return Point(NEVER, 0.0)
    exact = made_of.messages / _seconds(made_of.last, made_of.before)
    return Point(resource_date(made_of.last), float(f"{exact:.{DIGITS}g}"))


def _seconds(last: Milliseconds, before: Milliseconds | None) -> float:
    return 1.0 if before is None else max((last - before) / 1000, LEAST_INTERVAL)


def _daily(days: Mapping[str, int]) -> list[Point]:
    return [Point(day, messages) for day, messages in days.items()]
