"""Sections 14.1 to 14.6: metrics, usage, status, version; and rows of 17.3 and 17.4 about them. The clock stands
still."""

from ams import __version__
from tests.contract.rows import *

NEVER = "0001-01-01T00:00:00Z"
OF_PROJECT, OF_TOPIC, OF_SUBSCRIPTION = PROJECT + ":metrics", TOPIC + ":metrics", SUBSCRIPTION + ":metrics"
WATCH = PROJECT + ":watch"
HISTORY = PROJECT + ":history"


def metric(resource: str, name: str, short: str, *points: tuple[str, object], kind: str = "counter") -> object:
    return {
        "metric": f"{resource}.{short}", "metric_type": kind, "value_type": "int64" if kind == "counter" else "float64",
        "resource_type": resource, "resource_name": name, "description": Like("[A-Z].+[.]"),
        "timeseries": [{"timestamp": moment, "value": value} for moment, value in points],
    }  # fmt: skip


def metrics_answer(*metrics: object) -> Answer:
    return Answer({"metrics": list(metrics)})


def project(
    topics: int = 0, subscriptions: int = 0, days: tuple[tuple[str, int], ...] = (), users: tuple[object, ...] = ()
) -> Answer:
    return metrics_answer(
        metric("project", "$P", "number_of_topics", ("$now", topics)),
        metric("project", "$P", "number_of_subscriptions", ("$now", subscriptions)), *users,
        metric("project", "$P", "number_of_daily_messages", *days),
    )  # fmt: skip


def topic(
    subscriptions: int = 0, messages: int = 0, size: int = 0, days: tuple[tuple[str, int], ...] = (),
    rate: tuple[str, float] = (NEVER, 0.0),
) -> Answer:  # fmt: skip
    return metrics_answer(
        metric("topic", "T", "number_of_subscriptions", ("$now", subscriptions)),
        metric("topic", "T", "number_of_messages", ("$now", messages)),
        metric("topic", "T", "number_of_bytes", ("$now", size)),
        metric("topic", "T", "number_of_daily_messages", *days),
        metric("topic", "T", "publishing_rate", rate, kind="rate"),
    )


def subscription(messages: int = 0, size: int = 0, rate: tuple[str, float] = (NEVER, 0.0), lost: int = 0) -> Answer:
    return metrics_answer(
        metric("subscription", "S", "number_of_messages", ("$now", messages)),
        metric("subscription", "S", "number_of_bytes", ("$now", size)),
        metric("subscription", "S", "consumption_rate", rate, kind="rate"),
        metric("subscription", "S", "number_of_lost_messages", ("$now", lost)),
    )


def on_lists(name: str, what: str, count: int) -> object:
    return metric("project.user", f"$P.$P-{name}", f"number_of_{what}", ("$now", count))


OTHER_TOPIC, OTHER_SUBSCRIPTION = TOPICS + "/O", SUBSCRIPTIONS + "/R"

PROJECT_ROWS = [
    Row("14.1, clients A21", "an empty project", get(OF_PROJECT), project()),
    Row("14.1", "its topics and subscriptions", get(OF_PROJECT), project(2, 1), (*BOTH, put(OTHER_TOPIC))),
    Row("14.1, clients A21", "members on access lists, each kind oldest member first", get(OF_PROJECT), project(2, 1,
        users=(on_lists("pub", "topics", 2), on_lists("adm", "topics", 1), on_lists("con", "subscriptions", 1))), (PUB,
        ADM, CON, *BOTH, put(OTHER_TOPIC), modify_acl(TOPIC, "adm", "pub"), modify_acl(OTHER_TOPIC, "pub"),
        modify_acl(SUBSCRIPTION,
        "con"))),
    Row("14.1", "a member who left is not told of", get(OF_PROJECT), project(1),
        (PUB, A_TOPIC, modify_acl(TOPIC, "pub"), post(PROJECT + "/members/$P-pub:remove"))),
    Row("14.1", "messages of all topics by day, newest first, at once", get(OF_PROJECT),
        project(2, 1, (("$today", 3), ("$yesterday", 1))),
        (*BOTH, put(OTHER_TOPIC), publish(), Wait(86_400), publish("aGk=", "aGk="), publish(to=OTHER_TOPIC))),
    Row("14.1, 17.3 U13", "a deleted topic leaves its messages", get(OF_PROJECT), project(1, 0, (("$today", 3),)),
        (A_TOPIC, publish("aGk=", "aGk="), delete(TOPIC), A_TOPIC, publish())),
    Row("14.1", "of an unknown project", get("/projects/$P-none:metrics"), NO_PROJECT),
    Row("14.1, 1.3", "a verb after the verb is a bad name", get(OF_PROJECT + ":metrics"),
        error("IA", "Invalid project name")),
]  # fmt: skip

TOPIC_ROWS = [
    Row("14.2, clients A21", "a topic nobody published to", get(OF_TOPIC), topic(), (A_TOPIC,)),
    Row("14.2, 12.2", "messages, and bytes as the texts were sent", get(OF_TOPIC),
        topic(1, 3, 16, (("$today", 3),), ("$now", 3.0)), (*BOTH, publish("aGk=", "aGk=", "aGVsbG8=")), standing=True),
    Row("14.2, 12.2", "line breaks in data count as sent", get(OF_TOPIC), topic(0, 1, 6, (("$today", 1),), ("$now",
        1.0)), (A_TOPIC, publish("aG\r\nk=")), standing=True),
    Row("14.2, 12.2", "attributes count no bytes", get(OF_TOPIC), topic(0, 1, 4, (("$today", 1),), ("$now", 1.0)),
        (A_TOPIC, post(TOPIC + ":publish", {"messages": [{"data": "aGk=", "attributes": {"k": "value"}}]})),
        standing=True),
    Row("14.2", "the rate: messages of the last publish by the seconds since the one before", get(OF_TOPIC),
        topic(0, 6, 24, (("$today", 6),), ("$now", 2.5)),
        (A_TOPIC, publish(), Wait(2), publish("aGk=", "aGk=", "aGk=", "aGk=", "aGk="))),
    Row("14.2", "its timestamp stays that of the last publish", get(OF_TOPIC), Answer(Has(metrics=ListWith(
        metric("topic", "T", "publishing_rate", ("$before", 1.0), kind="rate")))), (A_TOPIC, publish(), Wait(3600))),
    Row("14.2, 17.4 O5", "two publishes at once: the interval is a millisecond at least", get(OF_TOPIC),
        topic(0, 2, 8, (("$today", 2),), ("$now", 1000.0)), (A_TOPIC, publish(), publish()), standing=True),
    Row("14.2", "messages by day", get(OF_TOPIC), topic(0, 3, 12, (("$today", 2), ("$yesterday", 1)), ("$now",
        0.0000231481)), (A_TOPIC, publish(), Wait(86_400), publish("aGk=", "aGk="))),
    Row("14.2, 17.4 O1", "asking twice changes nothing", get(OF_TOPIC), topic(0, 1, 4, (("$today", 1),), ("$now", 1.0)),
        (A_TOPIC, publish(), get(OF_TOPIC)), ((get(OF_TOPIC), topic(0, 1, 4, (("$today", 1),), ("$now", 1.0))),),
        standing=True),
    Row("14.2, 17.3 U13", "a topic created again counts from nothing", get(OF_TOPIC), topic(1),
        (*BOTH, publish(), delete(TOPIC), A_TOPIC)),
    Row("14.2", "of an unknown topic", get(OF_TOPIC), NO_TOPIC),
    Row("14.2, 3.5", "the list comes before the topic: a publisher gets 403 for an unknown one",
        get(OF_TOPIC, by="pub"), FORBIDDEN, (PUB,)),
    Row("14.2, 3.5", "without access lists that is 404", get(OF_TOPIC, by="pub"), NO_TOPIC, (PUB,),
        served="without access lists"),
    Row("14.2, 3.5", "a project admin who is a publisher too is not held up", get(OF_TOPIC, by="both"), OK,
        (A_TOPIC, member("both", "project_admin", "publisher"))),
    Row("14.2, 1.3", "POST of the verb falls into no route", post(OF_TOPIC),
        Answer(Has(error=Has(code=405)), 405), (A_TOPIC,)),
]  # fmt: skip

SUBSCRIPTION_ROWS = [
    Row("14.3, clients A21", "a subscription nobody pulled from", get(OF_SUBSCRIPTION), subscription(), BOTH),
    Row("14.3", "what a pull handed out", get(OF_SUBSCRIPTION), subscription(2, 12, ("$now", 2.0)),
        (*BOTH, publish("aGk=", "aGVsbG8="), pull())),
    Row("14.3", "repeats included", get(OF_SUBSCRIPTION), subscription(4, 16, ("$now", 1.0)),
        (*BOTH, publish("aGk=", "aGk="), pull(), Wait(2), pull())),
    Row("14.3", "the rate of the last pull", get(OF_SUBSCRIPTION), subscription(3, 12, ("$now", 0.5)),
        (*BOTH, publish("aGk=", "aGk=", "aGk="), pull(2), ack(1), Wait(2), pull())),
    Row("14.3, 17.4 O5", "two pulls at once: the interval is a millisecond at least", get(OF_SUBSCRIPTION),
        subscription(2, 8, ("$now", 1000.0)), (*BOTH, publish(), pull(), pull())),
    Row("14.3", "a pull that finds nothing is the last pull too", get(OF_SUBSCRIPTION), subscription(rate=("$now",
        0.0)), (*BOTH, pull())),
    Row("14.3", "attributes and line breaks count as for a publish", get(OF_SUBSCRIPTION), subscription(2, 10, ("$now",
        2.0)), (*BOTH, post(TOPIC + ":publish", {"messages": [{"data": "aGk=", "attributes": {"k": "\"\\"}}]}),
        publish("aG\r\nk="), pull())),
    Row("14.3", "also when its topic is gone", get(OF_SUBSCRIPTION), subscription(1, 4, ("$now", 1.0)),
        (*BOTH, publish(), pull(), delete(TOPIC))),
    Row("14.3", "ours: what retention took, also when nobody has looked since", get(OF_SUBSCRIPTION),
        subscription(lost=3), (*BOTH, publish("aGk=", "aGk=", "aGk="), Wait(7 * 86_400 + 2))),
    Row("14.3", "one created again counts from nothing", get(OF_SUBSCRIPTION), subscription(),
        (*BOTH, publish(), pull(), delete(SUBSCRIPTION), A_SUBSCRIPTION)),
    Row("14.3", "of an unknown subscription", get(OF_SUBSCRIPTION), NO_SUBSCRIPTION),
    Row("14.3, 3.5", "the list comes before the subscription: a consumer gets 403 for an unknown one",
        get(OF_SUBSCRIPTION, by="con"), FORBIDDEN, (CON,)),
    Row("14.3, 3.5", "without access lists that is 404", get(OF_SUBSCRIPTION, by="con"), NO_SUBSCRIPTION, (CON,),
        served="without access lists"),
    Row("17.4 O8, 14.3", "an error is one answer", get(OF_SUBSCRIPTION), NO_SUBSCRIPTION, (A_TOPIC,)),
]  # fmt: skip


WATCH_ROWS = [
    Row("14.7", "nothing to watch", get(WATCH), error("IA", "Name what to watch: topics, subscriptions or tail")),
    Row("14.7", "too many names", get(f"{WATCH}?topics={','.join(['T'] * 101)}"), error("IA", "At most 100 names")),
    Row("14.7", "a name that is none", get(f"{WATCH}?topics=a%20b"), error("IA", "Invalid name: a b")),
    Row("14.7", "a filter of nothing", get(f"{WATCH}?topics=T&filter=x"),
        error("IA", "A filter is of a tail: name its topic"), (A_TOPIC,)),
    Row("14.7, 19.1", "a filter that cannot be read", get(f"{WATCH}?tail=T&filter=attributes"),
        error("IA", 'Invalid filter at character 11: expected ":" or "." after attributes'), (A_TOPIC,)),
    Row("14.7", "an unknown topic", get(f"{WATCH}?topics=T"), NO_TOPIC),
    Row("14.7", "the tail of an unknown topic", get(f"{WATCH}?tail=T"), NO_TOPIC),
    Row("14.7", "an unknown subscription", get(f"{WATCH}?subscriptions=S"), NO_SUBSCRIPTION),
    Row("14.7", "of an unknown project", get("/projects/$P-none:watch?topics=T"), NO_PROJECT),
    Row("14.7, 3.5", "a publisher outside the list", get(f"{WATCH}?topics=T", by="pub"), FORBIDDEN, (A_TOPIC, PUB)),
    Row("14.7, 3.5", "a consumer outside the list", get(f"{WATCH}?subscriptions=S", by="con"), FORBIDDEN, (*BOTH, CON)),
    Row("14.7", "a publisher sees no tail", get(f"{WATCH}?tail=T", by="pub"), FORBIDDEN, (A_TOPIC, PUB)),
    Row("14.7", "a consumer sees a tail by a subscription", get(f"{WATCH}?tail=T", by="con"), FORBIDDEN, (*BOTH, CON)),
]  # fmt: skip

HISTORY_ROWS = [
    Row("14.8", "another span", get(f"{HISTORY}?span=year"), error("IA", "span is one of hour, day")),
    Row("14.8", "too many names", get(f"{HISTORY}?topics={','.join(['T'] * 101)}"), error("IA", "At most 100 names")),
    Row("14.8", "a name that is none", get(f"{HISTORY}?topics=a%20b"), error("IA", "Invalid name: a b")),
    Row("14.8", "an unknown topic", get(f"{HISTORY}?topics=T"), NO_TOPIC),
    Row("14.8", "an unknown subscription", get(f"{HISTORY}?subscriptions=S"), NO_SUBSCRIPTION),
    Row("14.8", "of an unknown project", get("/projects/$P-none:history"), NO_PROJECT),
    Row("14.8, 3.5", "a publisher outside the list", get(f"{HISTORY}?topics=T", by="pub"), FORBIDDEN, (A_TOPIC, PUB)),
    Row("14.8, 3.5", "a consumer outside the list", get(f"{HISTORY}?subscriptions=S", by="con"), FORBIDDEN,
        (*BOTH, CON)),
    Row("14.8", "topics are not for consumers", get(f"{HISTORY}?topics=T", by="con"), FORBIDDEN, (A_TOPIC, CON)),
    Row("14.8", "subscriptions are not for publishers", get(f"{HISTORY}?subscriptions=S", by="pub"), FORBIDDEN,
        (*BOTH, PUB)),
]  # fmt: skip

# Section 14.4: metrics of the node, and usage by project


class Percent:
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


def project_usage(
    name: str, messages: int = 0, average: float = 0.0, made: tuple[int, int, int] = (0, 0, 0)
) -> dict[str, object]:
    topics, subscriptions, users = made
    return {"project": name, "message_count": messages, "average_daily_messages": average, "topics_count": topics,
        "subscriptions_count": subscriptions, "users_count": users}  # fmt: skip


def usage(*projects: dict[str, object], messages: int = 0, average: float = 0.0) -> dict[str, object]:
    totals = {f"total_{what}_count": sum(each[f"{what}_count"] for each in projects)  # type: ignore[misc]  # numbers
        for what in ("users", "topics", "subscriptions")}  # fmt: skip
    of_projects = {"projects": list(projects), "total_message_count": messages, "average_daily_messages": average}
    return {"projects_metrics": of_projects, **totals}


def get_va_metrics(query: str = "", by: str = "admin") -> Request:
    return get(f"/metrics/va_metrics?projects=$P{query}", by=by)


def report(query: str = "", by: str = "adm") -> Request:
    return get(f"/users/usageReport{query}", by=by)


TODAY_ONLY = "&start_date=$today&end_date=$today"
BAD_START = error("IA", "Start date is not in valid format")
BAD_END = error("IA", "End date is not in valid format")
REVERSED = error("IA", "Start date cannot be after the end date")
OTHER = Request("POST", "/projects/$P-2", {})
NO_OTHER = error("NF", "Project $P-2 doesn't exist")

USAGE_ROWS = [
    Row("14.4, 17.4 O1, 17.4 O2, clients A21", "the node, one value each", get("/metrics"), Answer({"metrics": NODE}),
        (get("/metrics"),)),
    Row("14.4", "usage of a day", get_va_metrics(TODAY_ONLY), Answer(usage(project_usage("$P", 3, 3.0, (1, 1, 1)),
        messages=3, average=3.0)), (*BOTH, ADM, publish("aGk=", "aGk=", "aGk="))),
    Row("14.4", "both days are included, and the average is rounded up",
        get_va_metrics("&start_date=$yesterday&end_date=$today"), Answer(usage(project_usage("$P", 3, 1.5, (1, 0, 0)),
        messages=3, average=1.5)), (A_TOPIC, publish(), Wait(86_400), publish("aGk=", "aGk="))),
    Row("14.4", "the average of 1 message in 7 days is 0.15", get_va_metrics("&start_date=$week&end_date=$today"),
        Answer(usage(project_usage("$P", 1, 0.15, (1, 0, 0)), messages=1, average=0.15)), (A_TOPIC, publish())),
    Row("14.4", "from 1970 to today when nothing is said", get_va_metrics(),
        Answer(usage(project_usage("$P", 1, 0.01, (1, 0, 0)), messages=1, average=0.01)), (A_TOPIC, publish())),
    Row("14.4", "empty dates are absent ones", get_va_metrics("&start_date=&end_date="),
        Answer(usage(project_usage("$P", 1, 0.01, (1, 0, 0)), messages=1, average=0.01)), (A_TOPIC, publish())),
    Row("14.4", "what was made and published before the window does not count", get_va_metrics(TODAY_ONLY),
        Answer(usage(project_usage("$P"))), (*BOTH, ADM, publish(), Wait(86_400))),
    Row("14.4", "nor what came after it", get_va_metrics("&end_date=$yesterday"), Answer(usage(project_usage("$P"))),
        (Wait(86_400), *BOTH, ADM, publish())),
    Row("14.4, 17.4 O3", "users count in each of their projects, also when projects are named",
        get("/metrics/va_metrics?projects=$P,$P-2" + TODAY_ONLY),
        Answer(usage(project_usage("$P", made=(0, 0, 2)), project_usage("$P-2",
        made=(0, 0, 1)))), (OTHER, ADM, post("/users/$P-two", {"projects": [{"project": "$P", "roles": []},
        {"project": "$P-2", "roles": ["consumer"]}]}))),
    Row("14.4, 17.4 O4", "projects without messages are there, with zeros",
        get("/metrics/va_metrics?projects=$P-2,$P" + TODAY_ONLY),
        Answer(usage(project_usage("$P-2"), project_usage("$P", 1, 1.0, (1, 0,
        0)), messages=1, average=1.0)), (OTHER, A_TOPIC, publish())),
    Row("14.4", "the total average is the sum of the rounded ones",
        get("/metrics/va_metrics?projects=$P,$P-2&start_date=$week&end_date=$today"), Answer(usage(project_usage("$P",
        1, 0.15, (1, 0, 0)), project_usage("$P-2", 1, 0.15, (1, 0, 0)), messages=2, average=0.3)), (OTHER, A_TOPIC,
        publish(), put("/projects/$P-2/topics/T"), publish(to="/projects/$P-2/topics/T"))),
    Row("14.4, 17.3 U13", "messages of a deleted topic stay", get_va_metrics(TODAY_ONLY),
        Answer(usage(project_usage("$P", 2, 2.0), messages=2, average=2.0)),
        (A_TOPIC, publish("aGk=", "aGk="), delete(TOPIC))),
    Row("14.4, 17.4 O4", "all projects when none is named", get("/metrics/va_metrics"),
        Answer(Has(projects_metrics=Has(projects=ListWith(project_usage("$P")))))),
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
    Row("14.4, 1.3", "usageReport is no user's name", report(), Answer(
        {"va_metrics": usage(project_usage("$P", 2, 0.01, (1, 1, 1)), messages=2, average=0.01),
        "operational_metrics": {"metrics": NODE}}), (ADM, *BOTH, publish("aGk=", "aGk="))),
    Row("14.4, 17.4 O3", "a report of the projects the caller administers, and of no others",
        report(TODAY_ONLY.replace("&", "?", 1)), Answer(Has(va_metrics=usage(project_usage("$P", made=(0, 0, 1))))),
        (OTHER, ADM,
        Request("POST", "/projects/$P-3", {}), post("/projects/$P-2/members/$P-adm:add", {"roles": ["publisher"]}))),
    Row("14.4", "a report narrowed down; names outside are ignored", report("?projects=$P-2,$P-3,none" + TODAY_ONLY),
        Answer(Has(va_metrics=usage(project_usage("$P-2", made=(0, 0, 1))))),
        (OTHER, ADM, Request("POST", "/projects/$P-3", {}),
        post("/projects/$P-2/members/$P-adm:add", {"roles": ["project_admin"]}))),
    Row("14.4", "who administers no project gets zeros, and no operational metrics", report(by="pub"),
        Answer({"va_metrics": NO_USAGE, "operational_metrics": {"metrics": []}}), (PUB,)),
    Row("14.4", "a service admin administers no project by that", report(), Answer(Has(va_metrics=NO_USAGE)),
        (user("adm", "service_admin"),)),
    Row("14.4", "project_admin as a service role is of no project", report(), Answer(Has(va_metrics=NO_USAGE)),
        (user("adm", "project_admin"),)),
    Row("14.4", "a report for nobody, before the dates", report("?start_date=x", by="nobody"), UNAUTHORIZED),
    Row("14.4", "a report with a bad start date", report("?start_date=x&end_date=x"), BAD_START, (ADM,)),
    Row("14.4", "a report with a bad end date", report("?end_date=x"), BAD_END, (ADM,)),
    Row("14.4", "a report of a window that ends before it begins", report("?end_date=1969-12-31"), REVERSED, (ADM,)),
]  # fmt: skip

# Sections 14.5 and 14.6: status and version

ANY_TEXT = Like(".+")
STATUS = Answer({"status": "ok", "push_functionality": "disabled"})

STATUS_ROWS = [
    Row("14.5", "status with push disabled", get("/status", by="nobody"), STATUS),
    Row("14.5, clients A24", "status with a token", get("/status"), STATUS),
    Row("14.5", "details for a service admin", get("/status?details=true"), STATUS),
    Row("14.5", "details for an admin viewer", get("/status?details=true", by="av"), STATUS,
        (user("av", "admin_viewer"),)),
    Row("14.5, 17.4 O6", "details for nobody", get("/status?details=true", by="nobody"), UNAUTHORIZED),
    Row("14.5, 17.4 O6", "details for a stranger", get("/status?details=true", by="stranger"), UNAUTHORIZED),
    Row("14.5, 17.4 O6", "details for a user without the role", get("/status?details=true", by="adm"), FORBIDDEN,
        (member("adm", "project_admin"),)),
    Row("14.5", "only the exact text asks for details", get("/status?details=True", by="nobody"), STATUS),
    Row("14.6", "version for everybody", get("/version", by="nobody"), Answer(Has(build_time=DATE, golang=ANY_TEXT,
        compiler=ANY_TEXT, os=ANY_TEXT, architecture=ANY_TEXT, release=None, hostname=None))),
    Row("14.6, clients A24", "an invalid token is no error", get("/version", by="stranger"), Answer(Has(release=None))),
    Row("14.6", "the release for a service admin", get("/version"), Answer(Has(release=__version__))),
    Row("14.6", "the release for an admin viewer", get("/version", by="av"), Answer(Has(release=__version__)),
        (user("av", "admin_viewer"),)),
    Row("14.6", "not for others", get("/version", by="adm"), Answer(Has(release=None)),
        (member("adm", "project_admin"),)),
    Row("14.6", "the name behind a proxy", get("/version", by="nobody"), Answer(Has(hostname="ams.example")),
        served="behind a proxy"),
]  # fmt: skip

ROWS = [*PROJECT_ROWS, *TOPIC_ROWS, *SUBSCRIPTION_ROWS, *WATCH_ROWS, *HISTORY_ROWS, *USAGE_ROWS, *STATUS_ROWS]
