"""Lists: a page of 100 out of many against an empty list, and creating a topic where there are few and many."""

from collections.abc import Iterator

from bench import preparing
from bench.callers import Create, Get
from bench.processes import Service
from bench.report import Result, at_most
from bench.run import Bench, figures, median_ratio, middle, requests_per_second

CONNECTIONS = 4
PAGE = 100
PROJECTS = 100
FEW = 10


def lists(bench: Bench) -> Iterator[Result]:
    """Yield a result for each list, and one for creating topics."""
    with bench.service() as service:
        empty = preparing.project(service, "EMPTY")
        for number in range(PROJECTS - 2):
            preparing.project(service, f"P{number}")
        topics = preparing.topics(service, preparing.project(service, "BENCH"), "many", bench.plan.topics)
        preparing.subscriptions(service, topics, bench.plan.topics)
        preparing.members(service, "BENCH", bench.plan.topics)
        nothing = f"/v1/{empty}/topics?pageSize={PAGE}"
        yield _page(bench, service, "topics", f"/v1/projects/BENCH/topics?pageSize={PAGE}", nothing)
        yield _page(bench, service, "subscriptions", f"/v1/projects/BENCH/subscriptions?pageSize={PAGE}", nothing)
        yield _page(bench, service, "users", f"/v1/users?pageSize={PAGE}", nothing)
        yield _page(bench, service, "members", f"/v1/projects/BENCH/members?pageSize={PAGE}", nothing)
        yield _page(bench, service, "projects", "/v1/projects", nothing)
        yield _created(bench, service)


def _page(bench: Bench, service: Service, what: str, path: str, empty: str) -> Result:
    pairs = bench.in_turn(
        f"a page of {PAGE} {what}",
        lambda: bench.load(service, Get(path), CONNECTIONS),
        lambda: bench.load(service, Get(empty), CONNECTIONS),
    )
    return Result(
        f"list-{what}",
        {"page": PAGE, "of": PROJECTS if what == "projects" else bench.plan.topics},
        figures([each for each, _ in pairs])
        | {"empty_requests_s": middle([each for _, each in pairs], requests_per_second)},
        1 / median_ratio(pairs, requests_per_second),
        "times slower than an empty list",
        at_most(5),
    )


def _created(bench: Bench, many: Service) -> Result:
    with bench.service() as few:
        preparing.topics(few, preparing.project(few, "BENCH"), "few", FEW)
        pairs = bench.in_turn(
            f"create a topic where there are {FEW} and {bench.plan.topics}",
            lambda: bench.load(few, Create("projects/BENCH"), CONNECTIONS),
            lambda: bench.load(many, Create("projects/BENCH"), CONNECTIONS),
        )
        return Result(
            "create-topic",
            {"of": bench.plan.topics},
            figures([each for _, each in pairs])
            | {"few_requests_s": middle([each for each, _ in pairs], requests_per_second)},
            median_ratio(pairs, requests_per_second),
            f"times slower than where there are {FEW}",
            at_most(1.2),
        )
