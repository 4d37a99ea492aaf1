"""The faults: what each does to the site, and what clients may feel of it."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from tests.faults.cluster import breaking
from tests.faults.cluster.calls import Call, Course
from tests.faults.cluster.promises import Promise, answered_at_once
from tests.faults.cluster.site import Site

CLOCK_OFF_SECONDS = 600.0
FAR_BROKERS, FAR_DATABASE = attrgetter("kafka_links"), attrgetter("database_links")

Break = Callable[[Site, Course], Awaitable[None]]
Check = Callable[[Sequence[Call], Course], Iterator[str]]


def _nothing(calls: Sequence[Call], course: Course) -> Iterator[str]:
    return iter(())


class Fault(NamedTuple):
    name: str
    promise: Promise
    happens: Break
    check: Check = _nothing


FAULTS = [
    Fault("kill-node", Promise.IN_FLIGHT, breaking.kill_node),
    Fault("kill-owner", Promise.IN_FLIGHT, partial(breaking.kill_node, owner=True)),
    Fault("kill-leader", Promise.NONE, partial(breaking.kill_broker, leader=True)),
    Fault("kill-follower", Promise.NONE, partial(breaking.kill_broker, leader=False)),
    Fault("restart-primary", Promise.NONE, breaking.restart_primary),
    Fault("promote-standby", Promise.NONE, breaking.promote_standby),
    Fault("kill-standby", Promise.NONE, breaking.kill_standby),
    Fault("freeze-node", Promise.SOME, breaking.freeze_node),
    Fault("freeze-owner", Promise.SOME, partial(breaking.freeze_node, owner=True)),
    Fault("freeze-leader", Promise.NONE, breaking.freeze_leader),
    Fault("freeze-primary", Promise.SOME, breaking.freeze_primary),
    Fault("cut-node-brokers", Promise.SOME, partial(breaking.break_links, links=FAR_BROKERS, hold=False)),
    Fault("hold-node-brokers", Promise.SOME, partial(breaking.break_links, links=FAR_BROKERS, hold=True)),
    Fault("cut-node-database", Promise.SOME, partial(breaking.break_links, links=FAR_DATABASE, hold=False)),
    Fault("hold-node-database", Promise.SOME, partial(breaking.break_links, links=FAR_DATABASE, hold=True)),
    Fault("below-min-isr", Promise.SOME, breaking.below_min_isr),
    Fault("no-connections", Promise.SOME, breaking.out_of_connections),
    Fault("restart-brokers", Promise.SOME, breaking.brokers_away),
    Fault("kafka-away", Promise.SOME, partial(breaking.brokers_away, seconds=15.0), answered_at_once),
    Fault("clock-ahead", Promise.NONE, partial(breaking.clock_off, seconds=CLOCK_OFF_SECONDS)),
    Fault("clock-behind", Promise.NONE, partial(breaking.clock_off, seconds=-CLOCK_OFF_SECONDS)),
    Fault("upgrade", Promise.NONE, breaking.upgrade),
    Fault("one-of-each", Promise.IN_FLIGHT, breaking.one_of_each),
]
BY_NAME = {fault.name: fault for fault in FAULTS}
