"""The cluster shape: publish, pull and acknowledge through one node, with one Kafka broker and one PostgreSQL.

- Publish, against a bare loop of explicit batches, and against the embedded log.
- Pull at the tail, against the embedded log.
- Acknowledge in PostgreSQL, against bare statements.
"""

import secrets
from collections.abc import Iterator
from statistics import median

from bench import preparing
from bench.callers import Acknowledge, Publish, Pull
from bench.cluster import Parts, parts
from bench.cluster_bare import Batches, Job, Statements, run_comparator
from bench.processes import Service
from bench.report import Result, at_least
from bench.run import Bench, compared, figures, messages_per_second, requests_per_second

CONNECTIONS, MANY_CONNECTIONS = 16, 64
TAIL = 20_000
"""Messages of 1 KiB in the topic."""
NEWEST = 100
"""Of these, those that subscriptions at the tail stand before."""
BATCH = 5000
"""Messages handed out at once and acknowledged one by one."""
SMALL = 64
OF_THE_STATEMENT = 10_000 / 35_000
"""The goal: 10,000 a second where the bare grouped statement moves 35,000 cursors."""


def cluster(bench: Bench) -> Iterator[Result]:
    """Yield results for publishing, pulling and acknowledging, each through a new node."""
    with parts(bench) as there:
        with there.node() as node:
            yield _against_batches(bench, there, node, _topics(node))
            yield _of_one(bench, node)
        with there.node() as node, bench.service() as embedded:
            yield _tail(bench, node, embedded)
        with there.node() as node:
            yield _acknowledged(bench, there, node)


def _topics(service: Service, project: str = "BENCH") -> list[str]:
    return preparing.topics(service, preparing.project(service, project), "publish", 1)


def _against_batches(bench: Bench, there: Parts, node: Service, topics: list[str]) -> Result:
    def bare_loop() -> float:
        work = Batches(there.brokers.servers, f"bare-{secrets.token_hex(4)}", CONNECTIONS, 100)
        return run_comparator(Job(work, bench.plan.seconds)).per_second

    pairs = bench.in_turn(
        f"publish 100 at {CONNECTIONS} connections",
        lambda: bench.load(node, Publish(topics, 100), CONNECTIONS),
        bare_loop,
    )
    return Result(
        "cluster-publish",
        {"messages": 100, "connections": CONNECTIONS},
        figures([ours for ours, _ in pairs]) | {"bare_batches_messages_s": median(theirs for _, theirs in pairs)},
        median(messages_per_second(ours) / theirs for ours, theirs in pairs),
        "messages/s of a bare loop of explicit batches",
        at_least(0.4),
    )


def _of_one(bench: Bench, node: Service) -> Result:
    with bench.service() as embedded:
        ours, theirs = Publish(_topics(node, "single")), Publish(_topics(embedded))
        what = f"publish 1 at {MANY_CONNECTIONS} connections"
        pairs = bench.loads(what, (node, ours), (embedded, theirs), MANY_CONNECTIONS)
    params: dict[str, int | str] = {"messages": 1, "connections": MANY_CONNECTIONS}
    against = "requests/s of the embedded log"
    return compared("cluster-publish", params, pairs, "embedded_requests_s", against, at_least(0.5))


def _tail(bench: Bench, node: Service, embedded: Service) -> Result:
    ours, theirs = _at_the_tail(node), _at_the_tail(embedded)
    what = f"pull {NEWEST} at the tail, {CONNECTIONS} connections"
    pairs = bench.loads(what, (node, Pull(ours, NEWEST)), (embedded, Pull(theirs, NEWEST)), CONNECTIONS)
    params: dict[str, int | str] = {"messages": NEWEST, "connections": CONNECTIONS}
    against = "messages/s of the embedded log"
    return compared("cluster-pull", params, pairs, "embedded_messages_s", against, at_least(0.7), messages_per_second)


def _at_the_tail(service: Service) -> list[str]:
    topics = preparing.topics(service, preparing.project(service, "BENCH"), "tail", 1)
    subscriptions = preparing.subscriptions(service, topics, CONNECTIONS)
    preparing.fill(service, topics, TAIL)
    preparing.seek(service, ((name, TAIL - NEWEST) for name in subscriptions))
    return subscriptions


def _acknowledged(bench: Bench, there: Parts, node: Service) -> Result:
    topics = preparing.topics(node, preparing.project(node, "BENCH"), "ack", 1)
    subscriptions = preparing.subscriptions(node, topics, MANY_CONNECTIONS)
    preparing.fill(node, topics, BATCH, size=SMALL)
    bare = Statements(there.postgres.url(), MANY_CONNECTIONS)
    pairs = bench.in_turn(
        f"acknowledge at {MANY_CONNECTIONS} connections",
        lambda: bench.load(node, Acknowledge(subscriptions, BATCH), MANY_CONNECTIONS),
        lambda: run_comparator(Job(bare, bench.plan.seconds)),
    )
    return Result(
        "cluster-ack",
        {"connections": MANY_CONNECTIONS},
        figures([each for each, _ in pairs])
        | {"bare_statement_cursors_s": median(each.per_second for _, each in pairs)},
        median(requests_per_second(each) / theirs.per_second for each, theirs in pairs),
        "cursors/s of the bare grouped statement",
        at_least(OF_THE_STATEMENT),
    )
