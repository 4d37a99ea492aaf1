"""Documents as the API shows them, errors in its envelope, and changes by administrators with their leftovers."""

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

from bson import Int64, ObjectId

from demo.migrate.old.broker import Broker

Json = dict[str, Any]
Document = Mapping[str, Any]
STATUS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND", 408: "TIMEOUT", 409: "CONFLICT",
    500: "INTERNAL_SERVER_ERROR",
}  # fmt: skip
FORBIDDEN = "Access to this resource is forbidden"


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.body: Json = {"error": {"code": code, "message": message, "status": STATUS[code]}}


class Caller(NamedTuple):
    user: Mapping[str, Any]
    project: Mapping[str, Any]
    roles: frozenset[str]

    @property
    def uuid(self) -> str:
        return str(self.user["uuid"])


def roles_in(user: Mapping[str, Any], project_uuid: str) -> frozenset[str]:
    """Return the roles of a user: those of the service, and in a project those of the last entry there is for it."""
    found: Sequence[str] = ()
    for each in user.get("projects") or ():
        if project_uuid and each.get("project_uuid") == project_uuid:
            found = each.get("roles") or ()
    return frozenset([*found, *(user.get("service_roles") or ())])


def zulu(moment: Any) -> str:
    return f"{moment or datetime(1, 1, 1):%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0")


def without_empty(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value}


class Views:
    """Documents with the names of what they refer to, each collection read when it is first needed."""

    def __init__(self, database: Any) -> None:
        self._db = database
        self._read: dict[str, Sequence[Document]] = {}

    def all(self, collection: str) -> Sequence[Document]:
        if collection not in self._read:
            order = 1 if collection in ("projects", "schemas") else -1  # others: the newest first
            self._read[collection] = list(self._db[collection].find().sort("_id", order))
        return self._read[collection]

    @cached_property
    def _users(self) -> Mapping[Any, str]:
        return {each["uuid"]: each["name"] for each in self.all("users")}

    @cached_property
    def _projects(self) -> Mapping[Any, str]:
        return {each["uuid"]: each["name"] for each in self.all("projects")}

    @cached_property
    def _schemas(self) -> Mapping[Any, Document]:
        return {each["uuid"]: each for each in self.all("schemas")}

    def project(self, each: Document) -> Json:
        return without_empty({
            "name": each["name"], "created_on": zulu(each.get("created_on")),
            "modified_on": zulu(each.get("modified_on")), "description": each.get("description"),
            "created_by": self._users.get(each.get("created_by"), ""),
        })  # fmt: skip

    def user(self, each: Document, *, details: bool = True) -> Json:
        personal = {name: each.get(name) for name in ("first_name", "last_name", "organization", "description")}
        memberships = [self._membership(each["uuid"], entry) for entry in each.get("projects") or ()] if details else []
        return {
            "uuid": each["uuid"], **without_empty({"projects": memberships}), "name": each["name"],
            **without_empty(personal), **without_empty({"token": each["token"]}),
            "email": each.get("email") or "", "service_roles": each.get("service_roles") or [],
            "created_on": zulu(each.get("created_on")), "modified_on": zulu(each.get("modified_on")),
            **without_empty({"created_by": self._users.get(each.get("created_by"), "")}),
        }  # fmt: skip

    def _membership(self, user: str, entry: Document) -> Json:
        where = entry.get("project_uuid")
        return {
            "project": self._projects.get(where, ""), "roles": entry.get("roles") or [],
            "topics": self._listed("topics", where, user), "subscriptions": self._listed("subscriptions", where, user),
        }  # fmt: skip

    def _listed(self, collection: str, project: Any, user: str) -> list[str]:
        found = self._db[collection].find({"project_uuid": project, "acl": user}, {"name": 1}).sort("_id", -1)
        return [each["name"] for each in found]

    def topic(self, each: Document, project: str) -> Json:
        schema = self._schemas.get(each.get("schema_uuid"))
        return {
            "name": f"/projects/{project}/topics/{each['name']}",
            **({"schema": f"projects/{project}/schemas/{schema['name']}"} if schema else {}),
            "created_on": zulu(each.get("created_on")),
        }

    def subscription(self, each: Document, project: str) -> Json:
        return {
            "name": f"/projects/{project}/subscriptions/{each['name']}",
            "topic": f"/projects/{project}/topics/{each['topic']}",
            "pushConfig": _push(each), "ackDeadlineSeconds": int(each["ack"]),
            "createdOn": zulu(each.get("created_on")),
        }  # fmt: skip

    def registration(self, each: Document) -> Json:
        """Return a registration; some fields are shown only when there is something in them."""
        optional = ("decline_comment", "activation_token", "modified_at")
        always = ("uuid", "name", "first_name", "last_name", "organization", "description", "email", "status")
        return {
            **{name: each.get(name) or "" for name in (*always, "registered_at")},
            **without_empty({name: each.get(name) for name in optional}),
            **without_empty({"modified_by": self._users.get(each.get("modified_by"), "")}),
        }

    def acl(self, each: Document) -> Json:
        return {"authorized_users": [self._users[uuid] for uuid in each.get("acl") or () if uuid in self._users]}


def _push(each: Document) -> Json:
    kind = each.get("push_type") or ""
    if not kind:
        return {
            "type": "", "pushEndpoint": "", "maxMessages": 0, "authorizationHeader": {}, "retryPolicy": {},
            "verificationHash": "", "verified": False, "mattermostUrl": "", "mattermostUsername": "",
            "mattermostChannel": "", "base64Decode": False,
        }  # fmt: skip
    header = {"type": each.get("authorization_type"), "value": each.get("authorization_header")}
    policy = {"type": each.get("retry_policy"), "period": int(each.get("retry_period") or 0)}
    return {
        "type": kind, "pushEndpoint": each.get("push_endpoint") or "",
        "maxMessages": int(each.get("max_messages") or 1),
        "authorizationHeader": without_empty(header), "retryPolicy": without_empty(policy),
        "verificationHash": each.get("verification_hash") or "", "verified": bool(each.get("verified")),
        "mattermostUrl": each.get("mattermost_url") or "", "mattermostUsername": each.get("mattermost_username") or "",
        "mattermostChannel": each.get("mattermost_channel") or "", "base64Decode": bool(each.get("base_64_decode")),
    }  # fmt: skip


def metric(name: str, kind: str, resource: str, points: list[tuple[str, float]], value: str = "int64") -> Json:
    scope = name.partition(".")[0]
    series = [{"timestamp": when, "value": what} for when, what in points]
    return {
        "metric": name, "metric_type": kind, "value_type": value, "resource_type": scope, "resource_name": resource,
        "timeseries": series, "description": name,
    }  # fmt: skip


NEVER = datetime(1, 1, 1)
_PULLED = {
    "push_type": "", "push_endpoint": "", "retry_policy": "", "retry_period": 0, "verification_hash": "",
    "verified": False, "mattermost_url": "", "mattermost_username": "", "mattermost_channel": "",
    "base_64_decode": False,
}  # fmt: skip


def new_token() -> str:
    return sha256(uuid.uuid4().bytes).hexdigest()


class Changes:
    def __init__(self, database: Any, broker: Broker) -> None:
        self._db, self._broker = database, broker

    def _insert(self, collection: str, **fields: Any) -> Document:
        made = {"_id": ObjectId(), **fields}
        self._db[collection].insert_one(made)
        return made

    def create_project(self, caller: Caller, name: str, body: Json) -> Json:
        if self._db.projects.find_one({"name": name}):
            raise Refused(409, "Project already exists")
        now = datetime.now(UTC)
        made = self._insert(
            "projects", uuid=str(uuid.uuid4()), name=name, created_on=now, modified_on=now,
            created_by=caller.user["uuid"], description=body.get("description") or "",
        )  # fmt: skip
        return Views(self._db).project(made)

    def delete_project(self, caller: Caller) -> None:
        """Delete a project with its topics, subscriptions and days; members, schemas and messages stay."""
        which = {"project_uuid": caller.project["uuid"]}
        self._db.projects.delete_one({"uuid": caller.project["uuid"]})
        for collection in ("topics", "subscriptions", "daily_topic_msg_count"):
            self._db[collection].delete_many(which)

    def create_user(self, caller: Caller, name: str, body: Json) -> Json:
        if self._db.users.find_one({"name": name}):
            raise Refused(409, "User already exists")
        now = datetime.now(UTC)
        projects = [
            {"project_uuid": self._db.projects.find_one({"name": each["project"]})["uuid"], "roles": each.get("roles")}
            for each in body.get("projects") or ()
        ]
        made = self._insert(
            "users", uuid=str(uuid.uuid4()), projects=projects, name=name, token=new_token(),
            email=body.get("email") or "", service_roles=body.get("service_roles"), created_on=now, modified_on=now,
            created_by=caller.user["uuid"],
        )  # fmt: skip
        return Views(self._db).user(made)

    def delete_user(self, name: str) -> None:
        self._db.users.delete_one({"name": name})

    def refresh_token(self, name: str) -> Json:
        self._db.users.update_one({"name": name}, {"$set": {"token": new_token()}})
        return Views(self._db).user(self._db.users.find_one({"name": name}))

    def create_schema(self, caller: Caller, name: str, body: Json) -> None:
        raw = base64.b64encode(json.dumps(body["schema"], sort_keys=True, separators=(",", ":")).encode()).decode()
        self._insert(
            "schemas", project_uuid=caller.project["uuid"], uuid=str(uuid.uuid4()), name=name,
            type=body["type"].lower(), raw_schema=raw,
        )  # fmt: skip

    def create_topic(self, caller: Caller, name: str, body: Json) -> None:
        where, schema = caller.project["uuid"], (body.get("schema") or "").rpartition("/")[2]
        found = self._db.schemas.find_one({"project_uuid": where, "name": schema}) if schema else None
        self._insert(
            "topics", project_uuid=where, name=name, acl=[], msg_num=Int64(0), total_bytes=Int64(0),
            latest_publish=NEVER, publish_rate=0.0,
            schema_uuid=found["uuid"] if found else "", created_on=datetime.now(UTC),
        )  # fmt: skip

    def delete(self, kind: str, document: Document) -> None:
        self._db[kind].delete_one({"_id": document["_id"]})

    async def create_subscription(self, caller: Caller, name: str, body: Json) -> None:
        """Make a subscription, which starts at the end of the topic it names, in the project it names."""
        _, project, _, topic = body["topic"].split("/")
        if self._db.topics.find_one({"project_uuid": caller.project["uuid"], "name": topic}) is None:
            raise Refused(404, "Topic doesn't exist")
        if self._db.subscriptions.find_one({"project_uuid": caller.project["uuid"], "name": name}):
            raise Refused(409, "Subscription already exists")
        there = self._db.projects.find_one({"name": project}) or {"uuid": ""}
        end = (await self._broker.range(f"{there['uuid']}.{topic}")).max
        self._insert(
            "subscriptions", project_uuid=caller.project["uuid"], name=name, topic=topic, offset=Int64(end),
            next_offset=Int64(0), pending_ack="", ack=int(body.get("ackdeadlineseconds") or 10), acl=[],
            max_messages=Int64(0), authorization_type="", authorization_header="", msg_num=Int64(0),
            total_bytes=Int64(0), latest_consume=NEVER, consume_rate=0.0, created_on=datetime.now(UTC), **_PULLED,
        )  # fmt: skip
        if body.get("pushconfig"):
            made = self._db.subscriptions.find_one({"project_uuid": caller.project["uuid"], "name": name})
            self.modify_push_config(made, body["pushconfig"])

    def modify_acl(self, kind: str, document: Document, body: Json) -> None:
        users = [self._db.users.find_one({"name": each}) for each in body["authorized_users"]]
        self.set(kind, document, acl=[each["uuid"] for each in users])

    def modify_push_config(self, document: Document, asked: Json) -> None:
        """Replace a push configuration by one that is not verified; without any, what is not shown stays."""
        if not asked:
            self.set("subscriptions", document, **_PULLED)
            return
        policy = asked.get("retryPolicy") or {}
        self.set(
            "subscriptions", document, push_type=asked["type"], push_endpoint=asked["pushEndpoint"],
            max_messages=Int64(asked.get("maxMessages") or 1), authorization_type="autogen",
            authorization_header=new_token(), retry_policy=policy.get("type") or "linear",
            retry_period=policy.get("period") or 3000, verification_hash=new_token(), verified=False,
        )  # fmt: skip

    def set(self, kind: str, document: Document, **fields: Any) -> None:
        self._db[kind].update_one({"_id": document["_id"]}, {"$set": fields})

    def register(self, body: Json) -> None:
        personal = ("name", "first_name", "last_name", "organization", "description", "email")
        self._insert(
            "user_registrations", uuid=str(uuid.uuid4()), **{name: body.get(name) or "" for name in personal},
            status="pending", activation_token=new_token(), decline_comment="", registered_at=zulu(datetime.now(UTC)),
            modified_by="", modified_at="",
        )  # fmt: skip

    def decide(self, caller: Caller, identity: str, status: str, comment: str = "") -> Json:
        """Accept or decline a registration; who is accepted is a user."""
        which = {"uuid": identity, "status": "pending"}
        found = self._db.user_registrations.find_one(which)
        if found is None:
            raise Refused(404, "User registration doesn't exist")
        decided = {"status": status, "activation_token": "", "decline_comment": comment,
                   "modified_by": caller.user["uuid"], "modified_at": zulu(datetime.now(UTC))}  # fmt: skip
        self._db.user_registrations.update_one(which, {"$set": decided})
        return self.create_user(caller, found["name"], {"email": found["email"]}) if status == "accepted" else {}
