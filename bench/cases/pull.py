"""Taking messages at 16 connections: pull, pull and acknowledge, read a range; and acknowledge alone, at 64.

Each connection has a subscription of its own. The comparator is the bare handler's publish of 1.
"""

from collections.abc import Iterator
from statistics import median

from bench import preparing
from bench.callers import Acknowledge, Consume, Publish, Pull, Read
from bench.processes import Server, Service
from bench.report import Goal, Result, at_least
from bench.run import Bench, compared, figures, messages_per_second, middle, requests_per_second, server_microseconds

CONNECTIONS = 16
SIZES: tuple[tuple[int, Goal | None], ...] = ((1, None), (100, at_least(16)), (1000, None))
"""Messages a pull, and the goal: messages for each request the bare handler answers to a publish of 1."""
RANGE = 2000
FORMS: tuple[tuple[str, str, Goal | None], ...] = (
    ("lines", "application/x-ndjson", None),
    ("arrow", "application/vnd.apache.arrow.stream", at_least(12)),
)
"""Name, what is accepted, and the goal: messages for each request the bare handler answers to a publish of 1."""
ACK_CONNECTIONS = 64
ACK_BATCH = 5000
"""Messages handed out at once and acknowledged one by one; small ones, as an acknowledgement never sees them."""
SMALL = 64


def pull(bench: Bench) -> Iterator[Result]:
    """Yield a result for each size of a pull, then for pulling and acknowledging in turn."""
    with bench.service() as service, bench.bare() as bare:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "pull", 1)
        subscriptions = preparing.subscriptions(service, [topic], CONNECTIONS)
        preparing.fill(service, [topic], bench.plan.backlog)
        preparing.spread(service, subscriptions, bench.plan.backlog)
        for size, goal in SIZES:
            yield _taken(bench, service, bare, "pull", Pull(subscriptions, size), goal)
        yield _taken(bench, service, bare, "consume", Consume(subscriptions, 100), at_least(12))


def read(bench: Bench) -> Iterator[Result]:
    """Yield a result for each form: JSON lines, and an Arrow stream."""
    with bench.service() as service, bench.bare() as bare:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "read", 1)
        preparing.fill(service, [topic], bench.plan.backlog)
        for form, accept, goal in FORMS:
            yield _taken(bench, service, bare, "read", Read(topic, RANGE, bench.plan.backlog, accept), goal, form=form)


def _taken(
    bench: Bench, service: Service, bare: Server, case: str, work: Pull | Consume | Read, goal: Goal | None, **form: str
) -> Result:
    pairs = bench.loads(
        " ".join([case, str(work.messages), *form.values(), f"at {CONNECTIONS} connections"]),
        (service, work),
        (bare, Publish(["projects/BENCH/topics/bare"])),
        CONNECTIONS,
    )
    bares = [each for _, each in pairs]
    return Result(
        case,
        {"messages": work.messages, "connections": CONNECTIONS, **form},
        figures([each for each, _ in pairs])
        | {
            "bare_requests_s": middle(bares, requests_per_second),
            "against_us": middle(bares, server_microseconds),
        },
        median(messages_per_second(ours) / requests_per_second(theirs) for ours, theirs in pairs),
        "messages for each publish 1 of the bare handler",
        goal,
    )


def acknowledge(bench: Bench) -> Iterator[Result]:
    """Yield the one result: each connection moves a cursor of its own."""
    with bench.service() as service, bench.bare() as bare:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "ack", 1)
        subscriptions = preparing.subscriptions(service, [topic], ACK_CONNECTIONS)
        preparing.fill(service, [topic], ACK_BATCH, size=SMALL)
        work, bare_work = Acknowledge(subscriptions, ACK_BATCH), Publish([topic])
        what = f"acknowledge at {ACK_CONNECTIONS} connections"
        pairs = bench.loads(what, (service, work), (bare, bare_work), ACK_CONNECTIONS)
        params: dict[str, int | str] = {"connections": ACK_CONNECTIONS}
        yield compared("ack", params, pairs, "bare_requests_s", "requests/s of the bare handler", at_least(0.9))
