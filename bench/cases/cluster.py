"""Publish, pull and acknowledge through one node, with one broker and one PostgreSQL.

- Publish, against a bare loop of explicit batches, and against the embedded log.
- Pull from Kafka: at the tail, and catching up far behind it, against the embedded log.
- Acknowledge in PostgreSQL, against bare statements.
"""

import secrets
from collections.abc import Iterator
from statistics import median

from bench import preparing
from bench.beside import Batches, Job, Statements, beside
from bench.callers import Acknowledge, Consume, Publish, Pull
from bench.cluster import Parts, parts
from bench.processes import Service
from bench.report import Result, at_least, at_most
from bench.run import Bench, compared, figures, messages_per_second, middle, p99, requests_per_second
from bench.tally import Outcome

CONNECTIONS, MANY_CONNECTIONS = 16, 64
TAIL = 20_000
"""Messages of 1 KiB in the topic."""
NEWEST = 100
"""Of these, those that subscriptions at the tail stand before."""
BEHIND = 10
"""Subscriptions that catch up."""
CATCH_UP_PULL = 1000
TAIL_RATE = 200.0
"""Pulls a second at the tail beside those who catch up: an open loop, so that waiting shows."""
BATCH = 5000
"""Messages handed out at once and acknowledged one by one."""
SMALL = 64
OF_THE_STATEMENT = 10_000 / 35_000
"""The goal: 10,000 a second where the bare grouped statement moves 35,000 cursors."""


def cluster_publish(bench: Bench) -> Iterator[Result]:
    """Yield a result for requests of 100, then for those of 1."""
    with parts(bench) as there, there.service() as node:
        yield _against_batches(bench, there, node, _topics(node))
        yield from _of_one(bench, node)


def _topics(service: Service, project: str = "BENCH") -> list[str]:
    return preparing.topics(service, preparing.project(service, project), "publish", 1)


def _against_batches(bench: Bench, there: Parts, node: Service, topics: list[str]) -> Result:
    def bare_loop() -> float:
        work = Batches(there.brokers.servers, f"bare-{secrets.token_hex(4)}", CONNECTIONS, 100)
        return beside(Job(work, bench.plan.seconds)).per_second

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


def _of_one(bench: Bench, node: Service) -> Iterator[Result]:
    """Yield the results of publish 1: against the embedded log, and against the bare handler."""
    with bench.service() as embedded, bench.bare() as bare:
        ours, theirs = Publish(_topics(node, "single")), Publish(_topics(embedded))
        turns = bench.in_turn(
            f"publish 1 at {MANY_CONNECTIONS} connections",
            lambda: bench.load(node, ours, MANY_CONNECTIONS),
            lambda: (bench.load(embedded, theirs, MANY_CONNECTIONS), bench.load(bare, theirs, MANY_CONNECTIONS)),
        )
    params: dict[str, int | str] = {"messages": 1, "connections": MANY_CONNECTIONS}
    to_embedded = [(on_kafka, other) for on_kafka, (other, _) in turns]
    to_bare = [(on_kafka, other) for on_kafka, (_, other) in turns]
    against = "requests/s of the embedded log"
    yield compared("cluster-publish", params, to_embedded, "embedded_requests_s", against, at_least(0.5))
    against = "requests/s of the bare handler"
    yield compared("cluster-publish-bare", params, to_bare, "bare_requests_s", against, at_least(0.5))


def cluster_pull(bench: Bench) -> Iterator[Result]:
    """Yield the result at the tail, then those of catching up."""
    with parts(bench) as there, there.service() as node, bench.service() as embedded:
        ours, theirs = _at_the_tail(node), _at_the_tail(embedded)
        what = f"pull 100 at the tail, {CONNECTIONS} connections"
        pairs = bench.loads(what, (node, Pull(ours, NEWEST)), (embedded, Pull(theirs, NEWEST)), CONNECTIONS)
        params: dict[str, int | str] = {"messages": 100, "connections": CONNECTIONS}
        against = "messages/s of the embedded log"
        yield compared(
            "cluster-pull", params, pairs, "embedded_messages_s", against, at_least(0.7), messages_per_second
        )
        rates = [messages_per_second(each) for _, each in pairs]
        yield from _catching_up(bench, node, ours, median(rates))


def _at_the_tail(service: Service) -> list[str]:
    topics = preparing.topics(service, preparing.project(service, "BENCH"), "tail", 1)
    subscriptions = preparing.subscriptions(service, topics, CONNECTIONS)
    preparing.fill(service, topics, TAIL)
    preparing.seek(service, ((name, TAIL - NEWEST) for name in subscriptions))
    return subscriptions


def _catching_up(bench: Bench, node: Service, tail: list[str], embedded: float) -> Iterator[Result]:
    messages = 10 * bench.plan.backlog
    topics = preparing.topics(node, "projects/BENCH", "long", 1)
    behind = preparing.subscriptions(node, topics, BEHIND)
    preparing.fill(node, topics, messages)
    caught: list[Outcome] = []

    def alone() -> Outcome:
        return bench.load(node, Pull(tail, 10), CONNECTIONS, TAIL_RATE)

    def beside() -> Outcome:
        preparing.seek(node, ((name, 0) for name in behind))
        found, catching = bench.beside(node, Consume(behind, CATCH_UP_PULL), BEHIND, alone)
        caught.append(catching)
        return found

    pairs = bench.in_turn(f"{BEHIND} subscriptions catch up beside pulls at the tail", alone, beside)
    yield Result(
        "cluster-catch-up",
        {"subscriptions": BEHIND, "backlog": messages},
        figures(caught) | {"embedded_pull_100_messages_s": embedded},
        middle(caught, messages_per_second) / embedded,
        "messages/s of pulling 100 from the embedded log",
        at_least(0.5),
    )
    quiet, loud = middle([each for each, _ in pairs], p99), middle([each for _, each in pairs], p99)
    yield Result(
        "cluster-catch-up-tail",
        {"subscriptions": BEHIND, "rate": int(TAIL_RATE)},
        {"tail_p99_ms": 1000 * loud, "alone_p99_ms": 1000 * quiet},
        loud / quiet,
        "p99 of the tail alone",
        at_most(2),
    )


def cluster_ack(bench: Bench) -> Iterator[Result]:
    """Yield the one result."""
    with parts(bench) as there, there.service() as node:
        topics = preparing.topics(node, preparing.project(node, "BENCH"), "ack", 1)
        subscriptions = preparing.subscriptions(node, topics, MANY_CONNECTIONS)
        preparing.fill(node, topics, BATCH, size=SMALL)
        bare = Statements(there.postgres.url(), MANY_CONNECTIONS)
        pairs = bench.in_turn(
            f"acknowledge at {MANY_CONNECTIONS} connections",
            lambda: bench.load(node, Acknowledge(subscriptions, BATCH), MANY_CONNECTIONS),
            lambda: beside(Job(bare, bench.plan.seconds)),
        )
        ours = [each for each, _ in pairs]
        yield Result(
            "cluster-ack",
            {"connections": MANY_CONNECTIONS},
            figures(ours) | {"bare_statement_cursors_s": median(each.per_second for _, each in pairs)},
            median(requests_per_second(each) / theirs.per_second for each, theirs in pairs),
            "cursors/s of the bare grouped statement",
            at_least(OF_THE_STATEMENT),
        )
