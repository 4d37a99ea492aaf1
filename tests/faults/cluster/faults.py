"""The faults: what each breaks under load, and its permitted effects on clients."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import psycopg

from local_cluster.kafka import Brokers
from local_cluster.link import Link
from local_cluster.node import Node
from local_cluster.postgres import Postgres
from tests.faults.cluster.calls import Call, Course, Promise, answered_at_once
from tests.faults.cluster.site import ClusterSite
from tests.support.waiting import wait_until_async

FREEZE_SECONDS = 20.0
AWAY_SECONDS = 8.0
BELOW_SECONDS = 35.0
"""Seconds with too few in-sync brokers: longer than other nodes respect the claim of an idempotency key. So the fate of
a publish with a key is looked up while it is still unknown."""
PROMOTE_SECONDS = 2.0
APART_SECONDS = 6.0  # between the losses of one of each: what was lost before is made up for by then

Links = Callable[[ClusterSite], Sequence[Link]]


async def kill_node(site: ClusterSite, course: Course, *, owner: bool = False) -> None:
    """SIGKILL a node, or the owner of most parallel subscriptions; it is started again later."""
    node = await _node(site, course, owner=owner)
    course.begin()
    await asyncio.to_thread(node.kill)
    course.lose(node.name)
    await asyncio.sleep(AWAY_SECONDS)
    await asyncio.to_thread(node.start)


async def kill_broker(site: ClusterSite, course: Course, *, leader: bool) -> None:
    """SIGKILL the broker that leads the topic, or one that follows; it is started again later."""
    number, *others = await _leader_first(site, course)
    await _kill_parts(site.brokers, number if leader else others[0], course)


async def restart_primary(site: ClusterSite, course: Course) -> None:
    await _kill_parts(site.postgres, site.postgres.primary, course, seconds=0.0)


async def promote_standby(site: ClusterSite, course: Course) -> None:
    """SIGKILL PostgreSQL's primary, and promote a standby two seconds later, as an operator's script does."""
    lost = site.postgres.primary
    course.begin()
    await _lose_primary(site)
    await asyncio.sleep(AWAY_SECONDS)
    await asyncio.to_thread(site.postgres.rejoin, lost)


async def kill_standby(site: ClusterSite, course: Course) -> None:
    number = next(each for each in site.postgres.numbers if each != site.postgres.primary)
    await _kill_parts(site.postgres, number, course)


async def freeze_node(site: ClusterSite, course: Course, *, owner: bool = False) -> None:
    """SIGSTOP a node, or the owner of most parallel subscriptions, for twenty seconds."""
    node = await _node(site, course, owner=owner)
    await _freeze(node.freeze, node.thaw, course)


async def freeze_leader(site: ClusterSite, course: Course) -> None:
    """SIGSTOP the broker that leads the topic for twenty seconds."""
    number = await site.leader(course.topic)
    await _freeze(partial(site.brokers.freeze, number), partial(site.brokers.thaw, number), course)


async def freeze_primary(site: ClusterSite, course: Course) -> None:
    """SIGSTOP PostgreSQL's primary for twenty seconds; nobody promotes a standby."""
    number = site.postgres.primary
    await _freeze(partial(site.postgres.freeze, number), partial(site.postgres.thaw, number), course)
    course.end()


async def break_links(site: ClusterSite, course: Course, *, links: Links, hold: bool) -> None:
    """Cut the third node's links, or drop its packets."""
    course.begin()
    for link in links(site):
        link.hold() if hold else link.cut()
    await asyncio.sleep(AWAY_SECONDS)
    for link in links(site):
        link.restore()
    course.release()
    course.end()


async def below_min_isr(site: ClusterSite, course: Course) -> None:
    """SIGKILL both followers: the leader alone may not accept anything."""
    _, *followers = await _leader_first(site, course)
    course.begin()
    for number in followers:
        await asyncio.to_thread(site.brokers.kill, number)
    await asyncio.sleep(BELOW_SECONDS)
    await asyncio.to_thread(site.brokers.restart, *followers)
    course.end()


async def out_of_connections(site: ClusterSite, course: Course) -> None:
    """Take every connection that PostgreSQL has, also those of the nodes."""
    course.begin()
    with contextlib.ExitStack() as held:
        await asyncio.to_thread(_take_connections, site, held)
        await asyncio.sleep(AWAY_SECONDS)
    course.end()


def _take_connections(site: ClusterSite, held: contextlib.ExitStack) -> None:
    """Take the free connections, then end the nodes' sessions and reconnect faster than they do."""
    first = held.enter_context(site.postgres.open_connection())
    _fill(site, held)
    first.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND application_name <> 'taker' AND pid <> pg_backend_pid()"
    )
    _fill(site, held)


def _fill(site: ClusterSite, held: contextlib.ExitStack) -> None:
    url = site.postgres.url()
    with contextlib.suppress(psycopg.OperationalError):
        while True:
            held.callback(psycopg.connect(url, application_name="taker", connect_timeout=2).close)


async def brokers_away(site: ClusterSite, course: Course, *, seconds: float = 0.0) -> None:
    """SIGKILL all three brokers at once, and start them again after a while."""
    course.begin()
    for number in site.brokers.numbers:
        site.brokers.kill(number)
    await asyncio.sleep(seconds)
    course.help()
    await asyncio.to_thread(site.brokers.restart, *site.brokers.numbers)
    course.end()


async def clock_off(site: ClusterSite, course: Course, *, seconds: float) -> None:
    """Run a node with a wrong wall clock."""
    course.begin()
    node = site.nodes[1]
    for off in (seconds, 0.0):
        course.strike()
        await asyncio.to_thread(node.drain)
        node.set_clock(off)
        await asyncio.to_thread(node.start)
        await asyncio.sleep(AWAY_SECONDS)


async def upgrade(site: ClusterSite, course: Course) -> None:
    """Restart one node after another in order, as in a rolling upgrade."""
    course.begin()
    for node in site.nodes:
        course.strike()
        await asyncio.to_thread(node.drain)
        await asyncio.to_thread(node.start)


async def one_of_each(site: ClusterSite, course: Course) -> None:
    """SIGKILL a node, the leader and the primary, a few seconds apart; a standby is promoted, nothing is restarted."""
    course.begin()
    await asyncio.to_thread(site.nodes[0].kill)
    course.lose(site.nodes[0].name)
    await asyncio.sleep(APART_SECONDS)
    course.strike()
    await asyncio.to_thread(site.brokers.kill, await site.leader(course.topic))
    await asyncio.sleep(APART_SECONDS)
    course.strike()
    await _lose_primary(site)


async def _node(site: ClusterSite, course: Course, *, owner: bool) -> Node:
    if not owner:
        return site.nodes[0]
    found = await wait_until_async(lambda: asyncio.to_thread(site.owner, course.work))
    assert found is not None
    return found


async def _leader_first(site: ClusterSite, course: Course) -> list[int]:
    leading = await site.leader(course.topic)
    return sorted(site.brokers.numbers, key=lambda number: number != leading)


async def _lose_primary(site: ClusterSite) -> None:
    await asyncio.to_thread(site.postgres.kill, site.postgres.primary)
    await asyncio.sleep(PROMOTE_SECONDS)
    await asyncio.to_thread(site.postgres.promote)


async def _kill_parts(parts: Brokers | Postgres, number: int, course: Course, *, seconds: float = AWAY_SECONDS) -> None:
    course.begin()
    await asyncio.to_thread(parts.kill, number)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(parts.restart, number)


async def _freeze(freeze: Callable[[], None], thaw: Callable[[], None], course: Course) -> None:
    course.begin()
    freeze()
    try:
        await asyncio.sleep(FREEZE_SECONDS)
    finally:
        thaw()
        course.release()


CLOCK_OFF_SECONDS = 600.0
FAR_BROKERS, FAR_DATABASE = attrgetter("kafka_links"), attrgetter("database_links")

Break = Callable[[ClusterSite, Course], Awaitable[None]]
Check = Callable[[Sequence[Call], Course], Iterator[str]]


class Fault(NamedTuple):
    name: str
    promise: Promise
    happens: Break
    check: Check = lambda _calls, _course: iter(())


FAULTS = [
    Fault("kill-node", Promise.IN_FLIGHT, kill_node),
    Fault("kill-owner", Promise.IN_FLIGHT, partial(kill_node, owner=True)),
    Fault("kill-leader", Promise.NONE, partial(kill_broker, leader=True)),
    Fault("kill-follower", Promise.NONE, partial(kill_broker, leader=False)),
    Fault("restart-primary", Promise.NONE, restart_primary), Fault("promote-standby", Promise.NONE, promote_standby),
    Fault("kill-standby", Promise.NONE, kill_standby), Fault("freeze-node", Promise.SOME, freeze_node),
    Fault("freeze-owner", Promise.SOME, partial(freeze_node, owner=True)),
    Fault("freeze-leader", Promise.NONE, freeze_leader), Fault("freeze-primary", Promise.SOME, freeze_primary),
    Fault("cut-node-brokers", Promise.SOME, partial(break_links, links=FAR_BROKERS, hold=False)),
    Fault("hold-node-brokers", Promise.SOME, partial(break_links, links=FAR_BROKERS, hold=True)),
    Fault("cut-node-database", Promise.SOME, partial(break_links, links=FAR_DATABASE, hold=False)),
    Fault("hold-node-database", Promise.SOME, partial(break_links, links=FAR_DATABASE, hold=True)),
    Fault("below-min-isr", Promise.SOME, below_min_isr), Fault("no-connections", Promise.SOME, out_of_connections),
    Fault("restart-brokers", Promise.SOME, brokers_away),
    Fault("kafka-away", Promise.SOME, partial(brokers_away, seconds=15.0), answered_at_once),
    Fault("clock-ahead", Promise.NONE, partial(clock_off, seconds=CLOCK_OFF_SECONDS)),
    Fault("clock-behind", Promise.NONE, partial(clock_off, seconds=-CLOCK_OFF_SECONDS)),
    Fault("upgrade", Promise.NONE, upgrade), Fault("one-of-each", Promise.IN_FLIGHT, one_of_each),
]  # fmt: skip
BY_NAME = {fault.name: fault for fault in FAULTS}
