"""Lists: a page of 100 out of many against an empty list, and creating a topic where there are few and many."""

from collections.abc import Iterator

from bench import preparing
from bench.callers import Create, Get
from bench.processes import Service
from bench.report import Result
from bench.run import Bench, requests_per_second, slower

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
    pairs = bench.loads(f"a page of {PAGE} {what}", (service, Get(empty)), (service, Get(path)), CONNECTIONS)
    params: dict[str, int | str] = {"page": PAGE, "of": PROJECTS if what == "projects" else bench.plan.topics}
    return slower(f"list-{what}", params, pairs, "empty_requests_s", "an empty list", 5, requests_per_second)


def _created(bench: Bench, many: Service) -> Result:
    with bench.service() as few:
        preparing.topics(few, preparing.project(few, "BENCH"), "few", FEW)
        what, work = f"create a topic where there are {FEW} and {bench.plan.topics}", Create("projects/BENCH")
        pairs = bench.loads(what, (few, work), (many, work), CONNECTIONS)
        than = f"where there are {FEW}"
        return slower(
            "create-topic", {"of": bench.plan.topics}, pairs, "few_requests_s", than, figure=requests_per_second
        )
