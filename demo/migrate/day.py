"""A made-up day of a service of EGI in the reference's storage: documents, and records in Kafka.

The same seed gives the same day. Beside good data it has the leftovers of ten years: members of deleted projects,
duplicate names and tokens of users, and lists with deleted names. There are offsets of -1 and past the end, invalid
names, dates of the year 1, duplicate topics and subscriptions, and unreadable records. `odd` names all that a
comparison cannot expect to be the same afterwards.

It is written from the reference's document formats alone: the migration code, `ams.migrate`, is not used.
"""

import base64
import json
import random
import secrets
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from bson import Int64, ObjectId

from ams.access.permissions import PERMISSIONS
from demo.migrate.site import PROJECT as LIVE
from demo.migrate.site import PUSHED, WAYS, WORKER_TOKEN, Pushed, publisher, subscriber

Document = dict[str, Any]
NEVER = datetime(1, 1, 1)
WEEK = timedelta(days=7)
ROLES = ("project_admin", "publisher", "consumer")
GONE = "00000000-0000-4000-8000-00000000dead"


class Size(NamedTuple):
    users: int
    projects: int
    topics: int
    messages: int


FULL = Size(400, 60, 300, 1_000_000)
SMALL = Size(40, 8, 30, 20_000)


class Log(NamedTuple):
    name: str
    end: int
    first: int = 0
    dirty: bool = False  # whether some records are of the kinds that cannot be read, or not as they stand
    retention_ms: int | None = None
    elsewhere: int = 0  # messages in a second partition, which nobody ever saw


@dataclass
class Day:
    size: Size
    seed: int = 1
    collections: dict[str, list[Document]] = field(default_factory=dict)
    logs: list[Log] = field(default_factory=list)
    odd: set[str] = field(default_factory=set)
    """Users, `PROJECT` and `PROJECT/NAME` with documented differences after the migration."""
    admin_token: str = ""

    @property
    def kept(self) -> int:
        return sum(each.end - each.first for each in self.logs if not each.name.startswith(GONE))

    def add(self, collection: str, **fields: Any) -> Document:
        made = {"_id": ObjectId(), **fields}
        self.collections.setdefault(collection, []).append(made)
        return made


def made_up(size: Size, pushed: Pushed, seed: int = 1) -> Day:
    day = Day(size, seed)
    maker = _Maker(day, random.Random(seed))
    maker.people()
    maker.projects()
    maker.topics()
    maker.live(pushed)
    maker.rubbish()
    day.collections["roles"] = [
        {"_id": ObjectId(), "resource": action, "roles": sorted(roles)}
        for action, roles in PERMISSIONS.items()
        if roles
    ]
    return day


def records(log: Log, seed: int, until: datetime) -> Iterator[tuple[int, bytes]]:
    """Yield times in milliseconds and records, of a topic's last twenty hours."""
    chance = random.Random(f"{seed} {log.name}")
    start = until.timestamp() - 20 * 3600
    step = 20 * 3600 / max(log.end, 1)
    filler = base64.b64encode(chance.randbytes(90)).decode()
    for number in range(log.end):
        moment = start + number * step
        if log.dirty and number % 97 == 13:
            moment -= 2.5  # of a node whose clock is behind
        yield round(moment * 1000), _record(log, number, moment, filler, chance)


def _record(log: Log, number: int, moment: float, filler: str, chance: random.Random) -> bytes:
    when = datetime.fromtimestamp(moment, UTC)
    digits = f"{when:%f}{chance.randrange(1000):03}".rstrip("0")
    data = base64.b64encode(f"{log.name} {number} ".encode()).decode() + filler
    said: Document = {
        "messageId": str(number - number % 3),  # with several publishers half of them are wrong
        "attributes": {"site": f"SITE-{number % 50}", "type": "metric_data"},
        "data": data, "publishTime": f"{when:%Y-%m-%dT%H:%M:%S}{'.' if digits else ''}{digits}Z",
    }  # fmt: skip
    kind = number % 89 if log.dirty else 0
    if kind == 3 or (log.dirty and number == log.end - 1):
        return b""
    if kind == 7:
        said["attributes"] = [{"key": "site", "value": "before 2017"}]
    if kind == 11:
        return json.dumps(json.dumps(said)).encode()
    if kind == 17:
        said["attributes"] = {"text": "two\nlines, <b> & \u00fc"}
    if kind == 19:
        said |= {"data": f"msg {number}"}
    if kind == 23:
        del said["attributes"]
    if kind == 29:
        return b"\0" * 64
    return json.dumps(said, indent=1 if log.dirty else None).encode()


class _Maker:
    def __init__(self, day: Day, chance: random.Random) -> None:
        self._day, self._chance = day, chance
        self._users: list[Document] = []
        self._projects: list[Document] = []
        self._topics: list[Document] = []
        self._now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)

    def people(self) -> None:
        self._day.admin_token = self._token()
        self._user("admin", token=self._day.admin_token, service_roles=["service_admin"])
        self._user("push_worker_0", uuid="push-worker-0", token=WORKER_TOKEN, service_roles=["push_worker"])
        self._day.odd.add("push_worker_0")  # its uuid is none
        for number in range(self._day.size.users - len(self._day.collections["users"]) - 2 * len(WAYS)):
            fields: Document = {}
            if number % 10 == 1:
                fields["token"] = self._token()[:40]
            if number % 10 == 2:
                fields["service_roles"] = None
            if number % 20 == 3:
                fields |= {"modified_on": NEVER, "created_by": GONE}
            if number % 20 == 4:
                fields |= {"first_name": "Ann", "last_name": "Smith", "organization": "EGI", "description": "of a site"}
            if number == 5:
                fields["uuid"] = "ARGO-user-from-a-script"
                self._day.odd.add(f"user-{number}")
            if number == 6:
                fields["service_roles"] = ["metrics_viewer"]
            self._users.append(self._user(f"user-{number}", **fields))

    def _token(self) -> str:
        return self._chance.randbytes(32).hex()

    def _uuid(self) -> str:
        return str(uuid.UUID(bytes=self._chance.randbytes(16), version=4))

    def _user(self, name: str, **fields: Any) -> Document:
        own = {
            "uuid": self._uuid(), "projects": [], "name": name, "token": self._token(), "email": f"{name}@example.org",
            "service_roles": [], "created_on": self._moment(3000), "modified_on": self._moment(100), "created_by": "",
        }  # fmt: skip
        return self._day.add("users", **{**own, **fields})

    def _moment(self, days: int) -> datetime:
        return self._now - timedelta(days=1 + self._chance.random() * days)

    def projects(self) -> None:
        for number in range(self._day.size.projects - 1):
            name = "EGI ops/test" if number == 3 else f"EGI-{number}"
            made = self._day.add(
                "projects",
                uuid="ARGO-project-of-a-script" if number == 2 else self._uuid(), name=name,
                **({} if number % 7 == 5 else {"description": f"Project {number}"}),
                created_on=self._moment(3000), modified_on=self._moment(100),
                created_by=self._chance.choice(self._users)["uuid"],
            )  # fmt: skip
            if name != f"EGI-{number}":
                self._day.odd |= {name, "EGI_ops_test"}
            self._projects.append(made)
        for user in self._users:
            for project in self._chance.sample(self._projects, k=self._chance.randint(1, 3)):
                roles = self._chance.sample(ROLES, k=self._chance.randint(1, 2))
                user["projects"].append({"project_uuid": project["uuid"], "roles": roles})

    def topics(self) -> None:
        count = self._day.size.topics - len(WAYS)
        weights = [1 / (place + 1) ** 0.7 for place in range(count)]
        for number, weight in enumerate(weights):
            end = round(self._day.size.messages * weight / sum(weights))
            self._topic(self._projects[number % len(self._projects)], number, end)

    def _topic(self, project: Document, number: int, end: int) -> None:
        name = f"topic-{number}"
        log = Log(
            f"{project['uuid']}.{name}", end, first=end // 5 if number % 9 == 4 else 0, dirty=number % 6 == 5,
            retention_ms=30 * 86_400_000 if number % 11 == 3 else None, elsewhere=50 if number == 7 else 0,
        )  # fmt: skip
        self._day.logs.append(log)
        members = [
            each for each in self._users
            if any(entry["project_uuid"] == project["uuid"] for entry in each["projects"])
        ][:4]  # fmt: skip
        schema = ""
        if number % 8 == 2:
            schema = self._schema(project, f"schema-{number}")
        if number % 40 == 9:
            schema = GONE
        acl: Any = [each["uuid"] for each in members]
        if number % 12 == 1:
            acl = [*acl, GONE]  # hidden by the API
        if number % 12 == 6:
            acl = None
        made = self._day.add(
            "topics", project_uuid=project["uuid"], name=name, acl=acl, schema_uuid=schema,
            created_on=self._moment(900), msg_num=Int64(end), total_bytes=Int64(end * 190),
            latest_publish=self._now, publish_rate=2.5,
        )  # fmt: skip
        self._topics.append(made)
        if number % 30 == 13:
            made |= {"msg_num": Int64(max(end - 3, 0)), "publish_rate": float("inf")}
            self._day.odd.add(f"{project['name']}/{name}")  # no answer can say such a rate
        day = {"project_uuid": project["uuid"], "topic_name": name}
        today = self._now.replace(hour=0, minute=0, second=0)
        self._day.add("daily_topic_msg_count", date=today, msg_count=Int64(end - end // 3), **day)
        self._day.add("daily_topic_msg_count", date=today - timedelta(days=1), msg_count=Int64(end // 3), **day)
        for place in range(1 + number % 3):
            self._subscription(project, made, f"sub-{number}-{place}", log)

    def _schema(self, project: Document, name: str) -> str:
        said = json.dumps({"properties": {"site": {"type": "string"}}, "type": "object"}, separators=(",", ":"))
        identity = self._uuid()
        self._day.add(
            "schemas", uuid=identity, project_uuid=project["uuid"], name=name, type="json",
            raw_schema=base64.b64encode(said.encode()).decode(),
        )  # fmt: skip
        return identity

    def _subscription(
        self, project: Document, topic: Document, name: str, log: Log, more: Document | None = None
    ) -> None:
        own = {
            "project_uuid": project["uuid"], "name": name, "topic": topic["name"], "acl": topic["acl"] or [],
            "offset": Int64(self._chance.randint(log.first, log.end)), "next_offset": Int64(0), "pending_ack": "",
            "push_type": "", "push_endpoint": "", "max_messages": Int64(0), "authorization_type": "",
            "authorization_header": "", "ack": self._chance.choice((10, 10, 10, 30, 600)), "retry_policy": "",
            "retry_period": 0, "msg_num": Int64(0), "total_bytes": Int64(0), "latest_consume": NEVER,
            "consume_rate": 0.0,
            "verification_hash": "", "verified": False, "mattermost_url": "", "mattermost_username": "",
            "mattermost_channel": "", "base_64_decode": False, "created_on": self._moment(900),
        }  # fmt: skip
        self._day.add("subscriptions", **{**own, **(more or {})})

    def live(self, pushed: Pushed) -> None:
        project = self._day.add(
            "projects", uuid=self._uuid(), name=LIVE, description="Clients work here", created_on=self._now - WEEK,
            modified_on=self._now - WEEK, created_by="",
        )  # fmt: skip
        self._day.odd.add(LIVE)  # clients change it
        worker = self._day.collections["users"][1]
        worker["projects"].append({"project_uuid": project["uuid"], "roles": None})
        for way in WAYS:
            users = [
                self._user(who.name, token=who.token, projects=[{"project_uuid": project["uuid"], "roles": [who.role]}])
                for who in (publisher(way), subscriber(way))
            ]
            topic = self._day.add(
                "topics", project_uuid=project["uuid"], name=way, acl=[users[0]["uuid"]], schema_uuid="",
                created_on=self._now - WEEK, msg_num=Int64(0), total_bytes=Int64(0), latest_publish=NEVER,
                publish_rate=0.0,
            )  # fmt: skip
            push: Document = {}
            if way == PUSHED:
                push = {
                    "push_type": "http_endpoint", "push_endpoint": pushed.url, "max_messages": Int64(50),
                    "authorization_type": "autogen", "authorization_header": pushed.header, "retry_policy": "linear",
                    "retry_period": 300, "verification_hash": pushed.hash, "verified": True, "acl": [worker["uuid"]],
                }  # fmt: skip
            log = Log(f"{project['uuid']}.{way}", 0)
            self._subscription(project, topic, way, log, {"acl": [users[1]["uuid"]], "ack": 10, **push})

    def rubbish(self) -> None:
        users, projects = self._users, self._projects
        here, topic = projects[0], self._topics[0]
        log = self._day.logs[0]
        # Users: of a name and of a token that another has, a name nobody can address, memberships of what is gone.
        self._user(users[0]["name"], email="second@example.org")
        self._user("second-of-a-token", token=users[1]["token"])
        self._user("with a blank", uuid="4711")
        self._user("no-token", token="")
        users[2]["projects"].append({"project_uuid": GONE, "roles": ["consumer"]})
        users[4]["projects"].append({"project_uuid": users[4]["projects"][0]["project_uuid"], "roles": ["consumer"]})
        users[7]["projects"] = [{"project_uuid": here["uuid"]}]
        self._day.odd |= {
            users[0]["name"],
            users[1]["name"],
            users[4]["name"],
            "second-of-a-token",
            "with a blank",
            "with_a_blank",
        }
        self._day.odd.add("no-token")
        # Projects and what is in them: of a name that another has, and of a project that is gone.
        self._day.add("projects", uuid=self._uuid(), name=projects[1]["name"], created_on=self._moment(10))
        self._day.odd.add(projects[1]["name"])
        self._day.add("topics", project_uuid=GONE, name="orphan", acl=[])
        self._day.logs.append(Log(f"{GONE}.orphan", 20))
        self._day.add("subscriptions", project_uuid=GONE, name="orphan", topic="orphan", offset=Int64(3), ack=10)
        self._day.add("schemas", uuid=self._uuid(), project_uuid=GONE, name="orphan", type="json", raw_schema="e30=")
        # Topics: two of a name, and one from before there were dates, lists and counters.
        self._day.add(
            "topics", project_uuid=here["uuid"], name=topic["name"], acl=[users[3]["uuid"]], msg_num=Int64(0),
            created_on=self._now,
        )  # fmt: skip
        self._day.add("topics", project_uuid=here["uuid"], name="of 2018", msg_num=0.0)
        old = self._day.add("topics", project_uuid=here["uuid"], name="of-2018")
        # Subscriptions: offsets, deadlines and endpoints as they were found.
        name = here["name"]
        found: dict[str, Document] = {
            "minus-one": {"offset": Int64(-1)}, "beyond": {"offset": Int64(log.end + 9999)},
            "as-double": {"offset": 2.0},
            "negative-deadline": {"ack": -5}, "huge-deadline": {"ack": 86_400},
            "of-a-topic-gone": {"topic": "gone", "offset": Int64(12)},
            "http-endpoint": {"push_type": "http_endpoint", "push_endpoint": "http://example.org/in"},
            "before-types": {"push_endpoint": "https://example.org/in", "push_type": None},
            "was-pushed": {"authorization_type": "autogen", "max_messages": Int64(1)},
            "not-verified": {
                "push_type": "http_endpoint", "push_endpoint": "https://receiver.example.org/in",
                "max_messages": Int64(5), "authorization_type": "disabled", "retry_policy": "slowstart",
                "verification_hash": self._token(),
            },
            "of-old": {"topic": old["name"], "offset": Int64(0), "acl": None},
        }  # fmt: skip
        for end, fields in found.items():
            self._subscription(here, topic, end, log, fields)
            self._day.odd.add(f"{name}/{end}")
        self._subscription(here, topic, "beyond", log, {"offset": Int64(1)})  # a second one of the name
        self._day.odd |= {f"{name}/{topic['name']}", f"{name}/of 2018", f"{name}/of_2018", f"{name}/of-2018"}
        self._day.odd -= {f"{name}/as-double", f"{name}/was-pushed", f"{name}/not-verified"}
        # Schemas, registrations, days.
        broken = {"uuid": self._uuid(), "project_uuid": projects[1]["uuid"], "name": "broken", "type": "json"}
        self._day.add("schemas", **broken, raw_schema="?")
        self._day.odd.add("eve")  # of two the newest goes over
        for status, who in (("pending", "eve"), ("pending", "eve"), ("accepted", "dan"), ("declined", "mallory")):
            self._day.add(
                "user_registrations", uuid=self._uuid(), name=who, first_name=who, last_name="x", organization="EGI",
                description="", email=f"{who}@example.org", status=status, activation_token=secrets.token_hex(32),
                decline_comment="", registered_at="2025-01-02T03:04:05Z", modified_at="", modified_by="",
            )  # fmt: skip
        day = {"date": self._now.replace(hour=0, minute=0, second=0), "project_uuid": here["uuid"]}
        self._day.add("daily_topic_msg_count", topic_name="gone", msg_count=Int64(12), **day)
        self._day.add("daily_topic_msg_count", topic_name=topic["name"], msg_count=Int64(1), **day)
