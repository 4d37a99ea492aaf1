"""Pull, and pull and acknowledge, at 16 connections; acknowledge alone at 64.

Each connection has its own subscription. The comparator is the bare handler's publish of 1.
"""

from collections.abc import Iterator

from bench import preparing
from bench.callers import Acknowledge, Consume, Publish, Pull
from bench.processes import Server, Service
from bench.report import Goal, Result, at_least
from bench.run import Bench, compared, messages_per_second, requests_per_second

CONNECTIONS = 16
SIZES: tuple[tuple[int, Goal | None], ...] = ((1, None), (100, at_least(16)))
"""Messages a pull, and the goal: messages for each request the bare handler answers to a publish of 1."""
ACK_CONNECTIONS = 64
ACK_BATCH = 5000
"""Messages handed out at once and acknowledged one by one; small ones, as an acknowledgement never sees them."""
SMALL = 64


def pull(bench: Bench) -> Iterator[Result]:
    """Yield results for each size of a pull, for pulling and acknowledging in turn, and for acknowledging."""
    with bench.service() as service, bench.bare() as bare:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "pull", 1)
        subscriptions = preparing.subscriptions(service, [topic], CONNECTIONS)
        preparing.fill(service, [topic], bench.plan.backlog)
        preparing.spread(service, subscriptions, bench.plan.backlog)
        for size, goal in SIZES:
            yield _taken(bench, service, bare, "pull", Pull(subscriptions, size), goal)
        yield _taken(bench, service, bare, "consume", Consume(subscriptions, 100), at_least(12))
        yield _acknowledged(bench, service, bare)


def _taken(bench: Bench, service: Service, bare: Server, case: str, work: Pull | Consume, goal: Goal | None) -> Result:
    pairs = bench.loads(
        f"{case} {work.messages} at {CONNECTIONS} connections",
        (service, work),
        (bare, Publish(["projects/BENCH/topics/bare"])),
        CONNECTIONS,
    )
    params: dict[str, int | str] = {"messages": work.messages, "connections": CONNECTIONS}
    against, figure = "messages for each publish 1 of the bare handler", messages_per_second
    return compared(case, params, pairs, "bare_requests_s", against, goal, figure, requests_per_second)


def _acknowledged(bench: Bench, service: Service, bare: Server) -> Result:
    """Each connection moves a cursor of its own."""
    [topic] = preparing.topics(service, "projects/BENCH", "ack", 1)
    subscriptions = preparing.subscriptions(service, [topic], ACK_CONNECTIONS)
    preparing.fill(service, [topic], ACK_BATCH, size=SMALL)
    work, bare_work = Acknowledge(subscriptions, ACK_BATCH), Publish([topic])
    what = f"acknowledge at {ACK_CONNECTIONS} connections"
    pairs = bench.loads(what, (service, work), (bare, bare_work), ACK_CONNECTIONS)
    params: dict[str, int | str] = {"connections": ACK_CONNECTIONS}
    return compared("ack", params, pairs, "bare_requests_s", "requests/s of the bare handler", at_least(0.9))
