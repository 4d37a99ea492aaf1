"""A site's day and its events, as plain values: laws over any results, and what events say."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ams.pipeline.jobs.availability.documents import Defaults, Downtime, Group, Override, Place, Rules, overrides
from ams.pipeline.jobs.availability.figures import site_rows
from ams.pipeline.jobs.availability.inputs import DayInputs
from ams.pipeline.jobs.availability.sites import Result, timelines_of
from ams.pipeline.jobs.availability.timelines import AND, DAY, OR, STATUSES

EVE, TODAY = "2024-03-04", "2024-03-05"
RULES = Rules(
    metrics={"ce": ("jobs", "tcp"), "se": ("dav",)},
    metric_operation=AND,
    profile_operation=AND,
    groups=(Group(OR, {"ce": OR}), Group(OR, {"se": OR})),
)
HOSTS = (Place("ce", "c1"), Place("ce", "c2"), Place("se", "s1"))
MEASURED = [host._replace(metric=metric) for host in HOSTS for metric in RULES.metrics[host.service]]
ONE = st.tuples(
    st.sampled_from(MEASURED), st.integers(0, DAY - 1) | st.sampled_from([0, DAY - 1]), st.sampled_from(STATUSES)
)


def inputs(day: str = TODAY, *down: Downtime, until: int = DAY, eve: DayInputs | None = None) -> DayInputs:
    over: tuple[Override, ...] = tuple(overrides(day, down, [], Defaults()))
    return DayInputs(day, RULES, {"A": dict.fromkeys(HOSTS, "https://page.example/")}, over, until=until, eve=eve)


def collected(results: list[tuple[Place, int, str]]) -> dict[Place, list[Result]]:
    held: dict[Place, list[Result]] = {}
    for measured, second, status in results:
        held.setdefault(measured, []).append(Result(second, status, "mon1", f"{status} at {second}"))
    return held


@settings(deadline=None, max_examples=25)
@given(st.lists(ONE, max_size=12), st.lists(ONE, max_size=4), st.randoms(use_true_random=False))
def test_at_every_second_the_site_is_what_its_parts_come_to(
    today: list[tuple[Place, int, str]], eve: list[tuple[Place, int, str]], random: Random
) -> None:
    shuffled = today * 2
    random.shuffle(shuffled)
    found = timelines_of(inputs(), "A", collected(today), collected(eve))

    assert found == timelines_of(inputs(), "A", collected(shuffled), collected(eve))
    for second in {0, DAY - 1, *(result[1] for result in today), *(max(result[1] - 1, 0) for result in today)}:
        for host in HOSTS:
            below = [found[each].at(second) for each in MEASURED if each[:2] == host[:2]]
            assert found[host].at(second) == AND.over(below)
        services = [found[Place("ce")].at(second), found[Place("se")].at(second)]
        assert services[0] == OR.over(found[host].at(second) for host in HOSTS[:2])
        assert found[Place()].at(second) == AND.over(services)


@settings(deadline=None, max_examples=25)
@given(st.lists(ONE, max_size=12), st.lists(ONE, max_size=4))
def test_there_is_an_event_for_each_change_and_no_other(
    today: list[tuple[Place, int, str]], eve: list[tuple[Place, int, str]]
) -> None:
    results = {TODAY: collected(today), EVE: collected(eve)}
    rows = list(site_rows("A", results, [inputs(eve=inputs(EVE))], "Critical", 3600))
    stretches = [row for row in rows if "event" not in row and row["type"] == "endpoint_group"]
    events = [event for row in rows if (event := row.get("event")) and event["type"] == "endpoint_group"]

    inner = [row for row in stretches if row["start"] > 0]
    changes = [event for event in events if event["repeat"] == "false"]

    assert stretches[0]["start"] == 0
    assert stretches[-1]["end"] == DAY
    assert len(changes) - len(inner) in (0, 1)  # one more when the day begins with another status than the one before


def told(results: list[tuple[Place, int, str]], here: DayInputs, kind: str) -> list[dict[str, object]]:
    rows = site_rows("A", {TODAY: collected(results)}, [here], "Critical", DAY)
    return [{"date": row["date"], **row["event"]} for row in rows if "event" in row and row["type"] == kind]


ALL_OK = [(measured, 0, "OK") for measured in MEASURED]
DOWN = Downtime("2024-03-05T02:00:00Z", "2024-03-05T03:00:00Z", hostname="s1", service="se")


def test_an_event_of_the_site_names_the_metric_that_caused_it_and_all_around_it() -> None:
    results = [*ALL_OK, (MEASURED[4], 3600, "CRITICAL")]

    [event] = told(results, inputs(), "endpoint_group")

    four = ["CRITICAL", "OK", "2024-03-05T01:00:00Z", "2024-03-05T00:00:00Z"]
    place = {"report": "Critical", "type": "endpoint_group", "date": "2024-03-05", "endpoint_group": "A"}
    change = dict(zip(("status", "prev_status", "ts_monitored", "prev_ts"), four, strict=True))
    cause = {"service": "se", "hostname": "s1", "metric": "dav", "hostname_url": "https://page.example/"}
    result = {"monitoring_host": "mon1", "summary": "CRITICAL at 3600", "message": ""}
    levels = dict.fromkeys(("status_metric", "status_endpoint", "status_service", "status_egroup"), four)
    metrics = {"metric_names": ["dav"], "metric_statuses": ["CRITICAL"]}
    group = {"group_endpoints": ["c1", "c2", "s1"], "group_services": ["ce", "ce", "se"]}
    statuses = {"group_statuses": ["OK", "OK", "CRITICAL"], "repeat": "false", "reminder": "false"}
    assert event == {**place, **change, **cause, **result, **levels, **metrics, **group, **statuses}


def test_a_service_that_another_endpoint_carries_does_not_change() -> None:
    results = [*ALL_OK, (MEASURED[0], 3600, "CRITICAL")]

    assert [event["hostname"] for event in told(results, inputs(), "endpoint")] == ["c1"]
    assert told(results, inputs(), "service") == []


def test_a_downtime_is_its_own_cause() -> None:
    events = told(ALL_OK, inputs(TODAY, DOWN), "endpoint_group")

    assert [(event["status"], event["hostname"], event["metric"], event["summary"]) for event in events] == [
        ("DOWNTIME", "s1", "", ""),
        ("OK", "s1", "", ""),
    ]


def test_what_has_not_happened_yet_is_not_told() -> None:
    events = told(ALL_OK, inputs(TODAY, DOWN, until=7200), "endpoint_group")

    assert [event["status"] for event in events] == ["DOWNTIME"]


def test_a_site_without_anything_that_counts_has_no_timeline() -> None:
    found = timelines_of(inputs(), "B", {}, {})

    assert found == {}
    assert list(site_rows("B", {}, [inputs()], "Critical", DAY)) == []
