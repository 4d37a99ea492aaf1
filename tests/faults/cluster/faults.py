"""The faults: what each does to the site, what clients may feel of it, and what of it ends when."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple

import psycopg

from cluster.link import Link
from tests.faults.cluster.calls import Call
from tests.faults.cluster.site import Site

FREEZE_SECONDS = 20.0
AWAY_SECONDS = 8.0
"""How long what is down stays down."""
BELOW_SECONDS = 35.0
"""How long too few brokers are in sync: longer than the claim of an idempotency key is left alone, so that what becomes
of a publish with a key is asked while nobody can know."""
KAFKA_AWAY_SECONDS = 15.0
NOTICED_SECONDS = 10.0
"""After so long a node knows that all of Kafka is away: nobody who called before waits any more."""
PROMOTE_SECONDS = 2.0
APART_SECONDS = 6.0
"""Between the losses of one of each: what was lost before is made up for by then."""
AT_ONCE_SECONDS = 1.0
CLOCK_OFF_SECONDS = 600.0


class Promise(Enum):
    """How many calls may be let down."""

    NONE = "no call fails"
    IN_FLIGHT = "only publishes fail that were on their way to that node, and none of the official library"
    SOME = "calls may fail while it lasts"


@dataclass
class Course:
    """When a fault came and when it was over, and which topic it is about."""

    topic: str
    began: float = 0.0
    struck: float = 0.0
    """When the last part was broken."""
    ended: float | None = None
    """None: the cluster has to get over it without help."""

    def begin(self) -> None:
        """Note that it comes now."""
        self.began = self.struck = time.monotonic()

    def strike(self) -> None:
        """Note that another part is broken now."""
        self.struck = time.monotonic()

    def end(self) -> None:
        """Note that what was broken works again."""
        self.ended = time.monotonic()

    @property
    def until(self) -> float:
        """From when on the cluster has to get well."""
        return self.struck if self.ended is None else self.ended


Break = Callable[[Site, Course], Awaitable[None]]
Check = Callable[[Sequence[Call], Course], Iterator[str]]


def _nothing(calls: Sequence[Call], course: Course) -> Iterator[str]:
    return iter(())


class Fault(NamedTuple):
    """One fault."""

    name: str
    promise: Promise
    happens: Break
    check: Check = _nothing
    """Yields what else was promised and not kept."""


async def kill_node(site: Site, course: Course) -> None:
    """SIGKILL a node; it is started again later."""
    course.begin()
    await asyncio.to_thread(site.nodes[0].kill)
    await asyncio.sleep(AWAY_SECONDS)
    await asyncio.to_thread(site.nodes[0].start)


async def kill_broker(site: Site, course: Course, *, leader: bool) -> None:
    """SIGKILL the broker that leads the topic, or one that follows; it is started again later."""
    leading = await site.leader(course.topic)
    number = leading if leader else next(each for each in site.brokers.numbers if each != leading)
    course.begin()
    await asyncio.to_thread(site.brokers.kill, number)
    await asyncio.sleep(AWAY_SECONDS)
    await asyncio.to_thread(site.brokers.restart, number)


async def restart_primary(site: Site, course: Course) -> None:
    """SIGKILL PostgreSQL's primary and start it again at once."""
    course.begin()
    await asyncio.to_thread(site.postgres.kill, site.postgres.primary)
    await asyncio.to_thread(site.postgres.restart, site.postgres.primary)


async def promote_standby(site: Site, course: Course) -> None:
    """SIGKILL PostgreSQL's primary, and promote a standby two seconds later, as an operator's script does."""
    lost = site.postgres.primary
    course.begin()
    await asyncio.to_thread(site.postgres.kill, lost)
    await asyncio.sleep(PROMOTE_SECONDS)
    await asyncio.to_thread(site.postgres.promote)
    await asyncio.sleep(AWAY_SECONDS)
    await asyncio.to_thread(site.postgres.rejoin, lost)


async def kill_standby(site: Site, course: Course) -> None:
    """SIGKILL one of the two standbys."""
    number = next(each for each in site.postgres.numbers if each != site.postgres.primary)
    course.begin()
    await asyncio.to_thread(site.postgres.kill, number)
    await asyncio.sleep(AWAY_SECONDS)
    await asyncio.to_thread(site.postgres.restart, number)


async def freeze_node(site: Site, course: Course) -> None:
    """SIGSTOP a node for twenty seconds."""
    course.begin()
    site.nodes[0].freeze()
    try:
        await asyncio.sleep(FREEZE_SECONDS)
    finally:
        site.nodes[0].thaw()


async def freeze_leader(site: Site, course: Course) -> None:
    """SIGSTOP the broker that leads the topic for twenty seconds."""
    number = await site.leader(course.topic)
    course.begin()
    site.brokers.freeze(number)
    try:
        await asyncio.sleep(FREEZE_SECONDS)
    finally:
        site.brokers.thaw(number)


async def freeze_primary(site: Site, course: Course) -> None:
    """SIGSTOP PostgreSQL's primary for twenty seconds; nobody promotes a standby."""
    course.begin()
    site.postgres.freeze(site.postgres.primary)
    try:
        await asyncio.sleep(FREEZE_SECONDS)
    finally:
        site.postgres.thaw(site.postgres.primary)
        course.end()


async def break_links(site: Site, course: Course, *, links: Callable[[Site], Sequence[Link]], hold: bool) -> None:
    """Cut the third node off, or let its packets vanish."""
    course.begin()
    for link in links(site):
        if hold:
            link.hold()
        else:
            link.cut()
    await asyncio.sleep(AWAY_SECONDS)
    for link in links(site):
        link.restore()
    course.end()


async def below_min_isr(site: Site, course: Course) -> None:
    """SIGKILL both brokers that follow: the leader alone may not take anything."""
    leading = await site.leader(course.topic)
    followers = [number for number in site.brokers.numbers if number != leading]
    course.begin()
    for number in followers:
        await asyncio.to_thread(site.brokers.kill, number)
    await asyncio.sleep(BELOW_SECONDS)
    await asyncio.to_thread(site.brokers.restart, *followers)
    course.end()


async def out_of_connections(site: Site, course: Course) -> None:
    """Take every connection that PostgreSQL has, those of the nodes too."""
    course.begin()
    with contextlib.ExitStack() as held:
        await asyncio.to_thread(_take_connections, site, held)
        await asyncio.sleep(AWAY_SECONDS)
    course.end()


def _take_connections(site: Site, held: contextlib.ExitStack) -> None:
    """Take what is free, then end the sessions of the nodes and be faster than they."""
    first = held.enter_context(site.postgres.connected())
    _fill(site, held)
    first.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND application_name <> 'taker' AND pid <> pg_backend_pid()"
    )
    _fill(site, held)


def _fill(site: Site, held: contextlib.ExitStack) -> None:
    url = site.postgres.url()
    with contextlib.suppress(psycopg.OperationalError):
        while True:
            taken = psycopg.connect(url, application_name="taker", connect_timeout=2)
            held.callback(taken.close)


async def restart_brokers(site: Site, course: Course) -> None:
    """SIGKILL all three brokers at once and start them again."""
    course.begin()
    for number in site.brokers.numbers:
        site.brokers.kill(number)
    await asyncio.to_thread(site.brokers.restart, *site.brokers.numbers)
    course.end()


async def kafka_away(site: Site, course: Course) -> None:
    """SIGKILL all three brokers, and leave them down for a while."""
    course.begin()
    for number in site.brokers.numbers:
        site.brokers.kill(number)
    await asyncio.sleep(KAFKA_AWAY_SECONDS)
    course.end()
    await asyncio.to_thread(site.brokers.restart, *site.brokers.numbers)
    course.end()


def _fast_errors(calls: Sequence[Call], course: Course) -> Iterator[str]:
    """Without Kafka publishes are refused at once, and what needs no Kafka goes on."""
    assert course.ended is not None
    begin, end = course.began + NOTICED_SECONDS, course.began + KAFKA_AWAY_SECONDS
    during = [call for call in calls if begin < call.started and call.ended < end]
    for call in during:
        if call.what == "publish" and call.seconds > AT_ONCE_SECONDS:
            yield f"law 5: without Kafka publish {call.request} was answered {call.status} after {call.seconds:.1f} s"
        if call.what == "read" and (call.failed or call.seconds > AT_ONCE_SECONDS):
            yield f"law 6: without Kafka read {call.request} was answered {call.status} after {call.seconds:.1f} s"
    if not any(call.what == "publish" for call in during) or not any(call.what == "read" for call in during):
        yield "nobody published or read while Kafka was away"


async def clock_off(site: Site, course: Course, *, seconds: float) -> None:
    """Run a node whose time of day is wrong."""
    course.begin()
    node = site.nodes[1]
    for off in (seconds, 0.0):
        await asyncio.to_thread(node.drain)
        node.set_clock(off)
        await asyncio.to_thread(node.start)
        await asyncio.sleep(AWAY_SECONDS)


async def upgrade(site: Site, course: Course) -> None:
    """Stop one node after another in order and start it again, as with a new version."""
    course.begin()
    for node in site.nodes:
        await asyncio.to_thread(node.drain)
        await asyncio.to_thread(node.start)


async def one_of_each(site: Site, course: Course) -> None:
    """SIGKILL a node, the leader and the primary, a few seconds apart; a standby is promoted, nothing is restarted."""
    course.begin()
    await asyncio.to_thread(site.nodes[0].kill)
    await asyncio.sleep(APART_SECONDS)
    course.strike()
    await asyncio.to_thread(site.brokers.kill, await site.leader(course.topic))
    await asyncio.sleep(APART_SECONDS)
    course.strike()
    await asyncio.to_thread(site.postgres.kill, site.postgres.primary)
    await asyncio.sleep(PROMOTE_SECONDS)
    await asyncio.to_thread(site.postgres.promote)


def _far_brokers(site: Site) -> Sequence[Link]:
    return site.kafka_links


def _far_database(site: Site) -> Sequence[Link]:
    return site.database_links


FAULTS = [
    Fault("kill-node", Promise.IN_FLIGHT, kill_node),
    Fault("kill-leader", Promise.NONE, partial(kill_broker, leader=True)),
    Fault("kill-follower", Promise.NONE, partial(kill_broker, leader=False)),
    Fault("restart-primary", Promise.NONE, restart_primary),
    Fault("promote-standby", Promise.NONE, promote_standby),
    Fault("kill-standby", Promise.NONE, kill_standby),
    Fault("freeze-node", Promise.SOME, freeze_node),
    Fault("freeze-leader", Promise.NONE, freeze_leader),
    Fault("freeze-primary", Promise.SOME, freeze_primary),
    Fault("cut-node-brokers", Promise.SOME, partial(break_links, links=_far_brokers, hold=False)),
    Fault("hold-node-brokers", Promise.SOME, partial(break_links, links=_far_brokers, hold=True)),
    Fault("cut-node-database", Promise.SOME, partial(break_links, links=_far_database, hold=False)),
    Fault("hold-node-database", Promise.SOME, partial(break_links, links=_far_database, hold=True)),
    Fault("below-min-isr", Promise.SOME, below_min_isr),
    Fault("no-connections", Promise.SOME, out_of_connections),
    Fault("restart-brokers", Promise.SOME, restart_brokers),
    Fault("kafka-away", Promise.SOME, kafka_away, _fast_errors),
    Fault("clock-ahead", Promise.NONE, partial(clock_off, seconds=CLOCK_OFF_SECONDS)),
    Fault("clock-behind", Promise.NONE, partial(clock_off, seconds=-CLOCK_OFF_SECONDS)),
    Fault("upgrade", Promise.NONE, upgrade),
    Fault("one-of-each", Promise.IN_FLIGHT, one_of_each),
]
BY_NAME = {fault.name: fault for fault in FAULTS}
