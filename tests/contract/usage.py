"""Section 14.4: metrics of the node, and usage by project; and what 17.4 says of them."""

from tests.contract.metrics import metric
from tests.contract.rows import *


class Percent:
    """A share in percent, as a fraction."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and 0 <= other < 10_000


NODE = [
    {**metric("ams_node", "", short, kind="percentage"),  # type: ignore[dict-item]  # made of a dict above
     "resource_name": Like(".+"), "timeseries": [{"timestamp": "$now", "value": Percent()}]}
    for short in ("cpu_usage", "memory_usage")
]  # fmt: skip
NO_USAGE = {
    "projects_metrics": {"projects": [], "total_message_count": 0, "average_daily_messages": 0.0},
    "total_users_count": 0, "total_topics_count": 0, "total_subscriptions_count": 0,
}  # fmt: skip


def used(
    name: str, messages: int = 0, average: float = 0.0, made: tuple[int, int, int] = (0, 0, 0)
) -> dict[str, object]:
    topics, subscriptions, users = made
    return {"project": name, "message_count": messages, "average_daily_messages": average, "topics_count": topics,
        "subscriptions_count": subscriptions, "users_count": users}  # fmt: skip


def usage(*projects: dict[str, object], messages: int = 0, average: float = 0.0) -> dict[str, object]:
    """The whole report on projects; totals of what was made are summed up here."""
    totals = {f"total_{what}_count": sum(each[f"{what}_count"] for each in projects)  # type: ignore[misc]  # numbers
        for what in ("users", "topics", "subscriptions")}  # fmt: skip
    of_projects = {"projects": list(projects), "total_message_count": messages, "average_daily_messages": average}
    return {"projects_metrics": of_projects, **totals}


def va(query: str = "", by: str = "admin") -> Ask:
    return get(f"/metrics/va_metrics?projects=$P{query}", by=by)


def report(query: str = "", by: str = "adm") -> Ask:
    return get(f"/users/usageReport{query}", by=by)


TODAY_ONLY = "&start_date=$today&end_date=$today"
BAD_START = error("IA", "Start date is not in valid format")
BAD_END = error("IA", "End date is not in valid format")
REVERSED = error("IA", "Start date cannot be after the end date")
OTHER = Ask("POST", "/projects/$P-2", {})
NO_OTHER = error("NF", "Project $P-2 doesn't exist")

ROWS = [
    Row("14.4, 17.4 O1, 17.4 O2, clients A21", "the node, one value each", get("/metrics"), Answer({"metrics": NODE}),
        (get("/metrics"),)),
    Row("14.4", "the node for a metrics viewer", get("/metrics", by="mv"), OK, (user("mv", "metrics_viewer"),)),
    Row("14.4", "the node not for a project admin", get("/metrics", by="adm"), UNAUTHORIZED, (ADM,)),
    Row("14.4", "usage of a day", va(TODAY_ONLY), Answer(usage(used("$P", 3, 3.0, (1, 1, 1)), messages=3, average=3.0)),
        (*BOTH, ADM, publish("aGk=", "aGk=", "aGk="))),
    Row("14.4", "both days are included, and the average is rounded up", va("&start_date=$yesterday&end_date=$today"),
        Answer(usage(used("$P", 3, 1.5, (1, 0, 0)), messages=3, average=1.5)), (A_TOPIC, publish(), Wait(86_400),
        publish("aGk=", "aGk="))),
    Row("14.4", "the average of 1 message in 7 days is 0.15", va("&start_date=$week&end_date=$today"),
        Answer(usage(used("$P", 1, 0.15, (1, 0, 0)), messages=1, average=0.15)), (A_TOPIC, publish())),
    Row("14.4", "from 1970 to today when nothing is said", va(),
        Answer(usage(used("$P", 1, 0.01, (1, 0, 0)), messages=1, average=0.01)), (A_TOPIC, publish())),
    Row("14.4", "empty dates are absent ones", va("&start_date=&end_date="),
        Answer(usage(used("$P", 1, 0.01, (1, 0, 0)), messages=1, average=0.01)), (A_TOPIC, publish())),
    Row("14.4", "what was made and published before the window does not count", va(TODAY_ONLY),
        Answer(usage(used("$P"))), (*BOTH, ADM, publish(), Wait(86_400))),
    Row("14.4", "nor what came after it", va("&end_date=$yesterday"), Answer(usage(used("$P"))),
        (Wait(86_400), *BOTH, ADM, publish())),
    Row("14.4, 17.4 O3", "users count in each of their projects, also when projects are named",
        get("/metrics/va_metrics?projects=$P,$P-2" + TODAY_ONLY), Answer(usage(used("$P", made=(0, 0, 2)), used("$P-2",
        made=(0, 0, 1)))), (OTHER, ADM, post("/users/$P-two", {"projects": [{"project": "$P", "roles": []},
        {"project": "$P-2", "roles": ["consumer"]}]}))),
    Row("14.4, 17.4 O4", "projects without messages are there, with zeros",
        get("/metrics/va_metrics?projects=$P-2,$P" + TODAY_ONLY), Answer(usage(used("$P-2"), used("$P", 1, 1.0, (1, 0,
        0)), messages=1, average=1.0)), (OTHER, A_TOPIC, publish())),
    Row("14.4", "the total average is the sum of the rounded ones",
        get("/metrics/va_metrics?projects=$P,$P-2&start_date=$week&end_date=$today"),
        Answer(usage(used("$P", 1, 0.15, (1, 0, 0)), used("$P-2", 1, 0.15, (1, 0, 0)), messages=2, average=0.3)),
        (OTHER, A_TOPIC, publish(), put("/projects/$P-2/topics/T"), publish(to="/projects/$P-2/topics/T"))),
    Row("14.4, 17.3 U13", "messages of a deleted topic stay", va(TODAY_ONLY),
        Answer(usage(used("$P", 2, 2.0), messages=2, average=2.0)), (A_TOPIC, publish("aGk=", "aGk="), delete(TOPIC))),
    Row("14.4, 17.4 O4", "all projects when none is named", get("/metrics/va_metrics"),
        Answer(Has(projects_metrics=Has(projects=Holding(used("$P")))))),
    Row("14.4", "a bad start date comes first", get("/metrics/va_metrics?start_date=x&end_date=x&projects=none"),
        BAD_START),
    Row("14.4", "a bad end date is next", get("/metrics/va_metrics?end_date=2024-02-30&projects=none"), BAD_END),
    Row("14.4", "only YYYY-MM-DD is a date", get("/metrics/va_metrics?start_date=20240102"), BAD_START),
    Row("14.4", "with two digits each", get("/metrics/va_metrics?start_date=2024-1-2"), BAD_START),
    Row("14.4", "then a window that ends before it begins",
        get("/metrics/va_metrics?start_date=2024-01-02&end_date=2024-01-01&projects=none"), REVERSED),
    Row("14.4", "a window may be one day", get("/metrics/va_metrics?start_date=2024-01-02&end_date=2024-01-02"), OK),
    Row("14.4", "then the first project that does not exist", get("/metrics/va_metrics?projects=$P,$P-2,$P-3"),
        NO_OTHER),
    Row("14.4", "usage for a metrics viewer", va(by="mv"), OK, (user("mv", "metrics_viewer"),)),
    Row("14.4", "usage not for a project admin", va(by="adm"), UNAUTHORIZED, (ADM,)),
    Row("14.4, 1.3", "usageReport is no user's name", report(), Answer(
        {"va_metrics": usage(used("$P", 2, 0.01, (1, 1, 1)), messages=2, average=0.01),
        "operational_metrics": {"metrics": NODE}}), (ADM, *BOTH, publish("aGk=", "aGk="))),
    Row("14.4, 17.4 O3", "a report of the projects the caller administers, and of no others",
        report(TODAY_ONLY.replace("&", "?", 1)), Answer(Has(va_metrics=usage(used("$P", made=(0, 0, 1))))), (OTHER, ADM,
        Ask("POST", "/projects/$P-3", {}), post("/projects/$P-2/members/$P-adm:add", {"roles": ["publisher"]}))),
    Row("14.4", "a report narrowed down; names outside are ignored", report("?projects=$P-2,$P-3,none" + TODAY_ONLY),
        Answer(Has(va_metrics=usage(used("$P-2", made=(0, 0, 1))))), (OTHER, ADM, Ask("POST", "/projects/$P-3", {}),
        post("/projects/$P-2/members/$P-adm:add", {"roles": ["project_admin"]}))),
    Row("14.4", "who administers no project gets zeros, and no operational metrics", report(by="pub"),
        Answer({"va_metrics": NO_USAGE, "operational_metrics": {"metrics": []}}), (PUB,)),
    Row("14.4", "a service admin administers no project by that", report(), Answer(Has(va_metrics=NO_USAGE)),
        (user("adm", "service_admin"),)),
    Row("14.4", "project_admin as a service role is of no project", report(), Answer(Has(va_metrics=NO_USAGE)),
        (user("adm", "project_admin"),)),
    Row("14.4", "a report for nobody, before the dates", report("?start_date=x", by="nobody"), UNAUTHORIZED),
    Row("14.4", "a report for a stranger", report(by="stranger"), UNAUTHORIZED),
    Row("14.4", "the service token is nobody's", report(by="service"), UNAUTHORIZED),
    Row("14.4", "a report with a bad start date", report("?start_date=x&end_date=x"), BAD_START, (ADM,)),
    Row("14.4", "a report with a bad end date", report("?end_date=x"), BAD_END, (ADM,)),
    Row("14.4", "a report of a window that ends before it begins", report("?end_date=1969-12-31"), REVERSED, (ADM,)),
]  # fmt: skip
