"""Growth: the hot cases with the load spread over many topics, against one topic, in two services side by side."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from bench import preparing
from bench.callers import Acknowledge, Publish, Pull, Work
from bench.processes import Service
from bench.report import Result, at_most
from bench.run import Bench, slower
from bench.wake import wakes

MOST = 1.1
"""How much slower a hot case may be."""
PER_TOPIC = 100
"""Messages in each topic, and in each request that fills it."""
ACKS = 200_000
"""Acknowledgements prepared over all subscriptions of many topics: more than a measurement makes."""
ONE_TOPIC_ACKS = 5000
"""Those of each subscription of the one topic."""
CONNECTIONS = 64


@dataclass(frozen=True)
class ServiceTopics:
    """A service with its topics and subscriptions."""

    service: Service
    topics: list[str]
    pulled: list[str]
    acknowledged: list[str]
    acks: int


def topics(bench: Bench) -> Iterator[Result]:
    """Yield a result for each hot case."""
    with bench.service() as one, bench.service() as many:
        few, lots = _one(bench, one), _many(bench, many)
        yield _compared(bench, few, lots, "publish", 64, lambda side: Publish(side.topics))
        yield _compared(bench, few, lots, "publish", 16, lambda side: Publish(side.topics, per_request=100))
        yield _compared(bench, few, lots, "pull", 16, lambda side: Pull(side.pulled, PER_TOPIC))
        yield _compared(bench, few, lots, "ack", 64, lambda side: Acknowledge(side.acknowledged, side.acks))
        yield _woken(bench, few, lots)


def _one(bench: Bench, service: Service) -> ServiceTopics:
    project = preparing.project(service, "BENCH")
    topics = preparing.topics(service, project, "one", 1)
    small = preparing.topics(service, project, "small", 1)
    pulled = preparing.subscriptions(service, topics, CONNECTIONS)
    acknowledged = preparing.subscriptions(service, small, CONNECTIONS)
    preparing.fill(service, topics, bench.plan.backlog, per_request=PER_TOPIC)
    preparing.fill(service, small, ONE_TOPIC_ACKS, size=64)
    preparing.spread(service, pulled, bench.plan.backlog)
    return ServiceTopics(service, topics, pulled, acknowledged, ONE_TOPIC_ACKS)


def _many(bench: Bench, service: Service) -> ServiceTopics:
    topics = preparing.topics(service, preparing.project(service, "BENCH"), "many", bench.plan.topics)
    subscriptions = preparing.subscriptions(service, topics, bench.plan.topics)
    preparing.fill(service, topics, PER_TOPIC, per_request=PER_TOPIC)
    return ServiceTopics(service, topics, subscriptions, subscriptions, min(PER_TOPIC, ACKS // len(topics)))


def _compared(
    bench: Bench,
    one: ServiceTopics,
    many: ServiceTopics,
    case: str,
    connections: int,
    work: Callable[[ServiceTopics], Work],
) -> Result:
    what = f"{case} at {connections} connections over 1 and {bench.plan.topics} topics"
    pairs = bench.loads(what, (one.service, work(one)), (many.service, work(many)), connections)
    params = {"topics": bench.plan.topics, "connections": connections, **_size(work(one))}
    return slower(f"topics-{case}", params, pairs, "one_topic_messages_s", "1 topic", MOST)


def _size(work: Work) -> dict[str, int | str]:
    match work:
        case Publish(_, per_request):
            return {"messages": per_request}
        case Pull(_, messages):
            return {"messages": messages}
    return {}


def _woken(bench: Bench, one: ServiceTopics, many: ServiceTopics) -> Result:
    few, lots = _waited_for(bench, one), _waited_for(bench, many)
    tries = max(100, bench.plan.wakes // bench.plan.pairs)
    found = bench.in_turn(
        "wake-up of a waiting pull", lambda: wakes(one.service, *few, tries), lambda: wakes(many.service, *lots, tries)
    )
    few_p99, lots_p99 = median(each.p99 for each, _ in found), median(each.p99 for _, each in found)
    return Result(
        "topics-wake",
        {"topics": bench.plan.topics},
        {"p99_ms": 1000 * lots_p99, "one_topic_p99_ms": 1000 * few_p99},
        lots_p99 / few_p99,
        "times slower than 1 topic",
        at_most(MOST),
    )


def _waited_for(bench: Bench, side: ServiceTopics) -> tuple[list[str], list[str]]:
    """Return some of a side's topics and for each a subscription that stands at its end."""
    topics = side.topics[:: max(1, len(side.topics) // bench.plan.wakes)]
    return topics, preparing.subscriptions(side.service, topics, len(topics), name="wake")
