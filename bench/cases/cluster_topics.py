"""Growth on Kafka: 1,000 topics against 10, in two installations side by side, and what a topic costs a node."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench import preparing
from bench.callers import Publish, Pull, Work
from bench.cluster import parts
from bench.processes import Service
from bench.report import Result, at_most
from bench.run import Bench, slower

FEW, MANY = 10, 1000
CONNECTIONS = FEW
"""As many as the few topics: so no two publishes are gathered into one batch on either side, and calls are compared."""
PER_TOPIC = 20
ALLOWED_BYTES = 20_000
"""Memory a node may take for a topic."""


@dataclass(frozen=True)
class NodeTopics:
    """A node with its topics and a subscription of each."""

    node: Service
    topics: list[str]
    subscriptions: list[str]


def cluster_topics(bench: Bench) -> Iterator[Result]:
    """Yield a result for memory, then for publishing and pulling."""
    with parts(bench) as there, there.service() as few_node, there.service() as many_node:
        few = _side(few_node, FEW)
        _use(few)
        before = _used_memory(many_node)
        many = _side(many_node, MANY)
        _use(many)
        yield _memory(before, many_node)
        yield _compared(bench, few, many, "publish", lambda side: Publish(side.topics))
        yield _compared(bench, few, many, "pull", lambda side: Pull(side.subscriptions, PER_TOPIC))


def _side(node: Service, count: int) -> NodeTopics:
    topics = preparing.topics(node, preparing.project(node, "BENCH"), "topic", count)
    return NodeTopics(node, topics, preparing.subscriptions(node, topics, count))


def _use(side: NodeTopics) -> None:
    """Publish to every topic, so that the node has it in memory."""
    preparing.fill(side.node, side.topics, PER_TOPIC, per_request=PER_TOPIC, size=64)


def _used_memory(node: Service) -> int:
    """Return the memory of a node that has published and pulled to a few topics already."""
    warm = preparing.topics(node, preparing.project(node, "WARM"), "warm", FEW)
    preparing.fill(node, warm, 100 * PER_TOPIC, per_request=PER_TOPIC, size=64)
    return node.anonymous_memory()


def _memory(before: int, node: Service) -> Result:
    after = node.anonymous_memory()
    return Result(
        "cluster-topics-memory",
        {"topics": MANY},
        {"before_mb": before / 1e6, "after_mb": after / 1e6, "bytes_a_topic": (after - before) / MANY},
        (after - before) / MANY / ALLOWED_BYTES,
        "20 KB a topic",
        at_most(1),
    )


def _compared(bench: Bench, few: NodeTopics, many: NodeTopics, case: str, work: Callable[[NodeTopics], Work]) -> Result:
    what = f"{case} at {CONNECTIONS} connections over {FEW} and {MANY} topics"
    pairs = bench.loads(what, (few.node, work(few)), (many.node, work(many)), CONNECTIONS)
    params: dict[str, int | str] = {"topics": MANY, "connections": CONNECTIONS}
    return slower(f"cluster-topics-{case}", params, pairs, "few_topics_messages_s", f"{FEW} topics")
