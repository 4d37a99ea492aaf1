"""Range read: 2000 messages at 16 connections, as JSON lines and as an Arrow stream."""

from collections.abc import Iterator
from functools import partial

from bench import preparing
from bench.callers import Publish, Read
from bench.report import Goal, Result, at_least
from bench.run import Bench, figures, messages_per_second, middle, requests_per_second
from bench.stats import median

CONNECTIONS = 16
MESSAGES = 2000
FORMS: tuple[tuple[str, str, Goal | None], ...] = (
    ("lines", "application/x-ndjson", None),
    ("arrow", "application/vnd.apache.arrow.stream", at_least(8)),
)
"""Name, what is accepted, and the goal: messages for each request the bare handler answers to a publish of 1."""


def read(bench: Bench) -> Iterator[Result]:
    """Yield a result for each form."""
    with bench.service() as service, bench.bare() as bare:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "read", 1)
        preparing.fill(service, [topic], bench.plan.backlog)
        for form, accept, goal in FORMS:
            work = Read(topic, MESSAGES, bench.plan.backlog, accept)
            pairs = bench.in_turn(
                f"read {MESSAGES} as {form} at {CONNECTIONS} connections",
                partial(bench.load, service, work, CONNECTIONS),
                lambda: bench.load(bare, Publish(["projects/BENCH/topics/bare"]), CONNECTIONS),
            )
            bare_rate = middle([each for _, each in pairs], requests_per_second)
            yield Result(
                "read",
                {"messages": MESSAGES, "connections": CONNECTIONS, "form": form},
                figures([each for each, _ in pairs]) | {"bare_requests_s": bare_rate},
                median(messages_per_second(ours) / requests_per_second(theirs) for ours, theirs in pairs),
                "messages for each publish 1 of the bare handler",
                goal,
            )
