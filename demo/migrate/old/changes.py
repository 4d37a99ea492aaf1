"""Changes by administrators, with the leftovers they cause: users on lists, members of projects, subscriptions."""

import base64
import json
import uuid
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from bson import Int64, ObjectId

from demo.migrate.old.broker import Broker
from demo.migrate.old.views import Caller, Document, Json, Refused, Views, zulu

NEVER = datetime(1, 1, 1)
_PULLED = {
    "push_type": "", "push_endpoint": "", "retry_policy": "", "retry_period": 0, "verification_hash": "",
    "verified": False, "mattermost_url": "", "mattermost_username": "", "mattermost_channel": "",
    "base_64_decode": False,
}  # fmt: skip


def token() -> str:
    """Return a new token."""
    return sha256(uuid.uuid4().bytes).hexdigest()


class Changes:
    """Changes of documents."""

    def __init__(self, database: Any, broker: Broker) -> None:
        self._db, self._broker = database, broker

    def _insert(self, collection: str, **fields: Any) -> Document:
        made = {"_id": ObjectId(), **fields}
        self._db[collection].insert_one(made)
        return made

    def create_project(self, caller: Caller, name: str, body: Json) -> Json:
        """Make a project."""
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
        """Make a user, who is a member of projects by their names."""
        if self._db.users.find_one({"name": name}):
            raise Refused(409, "User already exists")
        now = datetime.now(UTC)
        projects = [
            {"project_uuid": self._db.projects.find_one({"name": each["project"]})["uuid"], "roles": each.get("roles")}
            for each in body.get("projects") or ()
        ]
        made = self._insert(
            "users", uuid=str(uuid.uuid4()), projects=projects, name=name, token=token(), email=body.get("email") or "",
            service_roles=body.get("service_roles"), created_on=now, modified_on=now, created_by=caller.user["uuid"],
        )  # fmt: skip
        return Views(self._db).user(made)

    def delete_user(self, name: str) -> None:
        """Delete a user, whose uuid stays on lists."""
        self._db.users.delete_one({"name": name})

    def refresh_token(self, name: str) -> Json:
        """Give a user a new token; the date of the last change stays."""
        self._db.users.update_one({"name": name}, {"$set": {"token": token()}})
        return Views(self._db).user(self._db.users.find_one({"name": name}))

    def create_schema(self, caller: Caller, name: str, body: Json) -> None:
        """Make a schema."""
        raw = base64.b64encode(json.dumps(body["schema"], sort_keys=True, separators=(",", ":")).encode()).decode()
        self._insert(
            "schemas", project_uuid=caller.project["uuid"], uuid=str(uuid.uuid4()), name=name,
            type=body["type"].lower(), raw_schema=raw,
        )  # fmt: skip

    def create_topic(self, caller: Caller, name: str, body: Json) -> None:
        """Make a topic."""
        where, schema = caller.project["uuid"], (body.get("schema") or "").rpartition("/")[2]
        found = self._db.schemas.find_one({"project_uuid": where, "name": schema}) if schema else None
        self._insert(
            "topics", project_uuid=where, name=name, acl=[], msg_num=Int64(0), total_bytes=Int64(0),
            latest_publish=NEVER, publish_rate=0.0,
            schema_uuid=found["uuid"] if found else "", created_on=datetime.now(UTC),
        )  # fmt: skip

    def delete(self, kind: str, document: Document) -> None:
        """Delete a topic, whose subscriptions stay, or a subscription."""
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
        """Replace an access list."""
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
            authorization_header=token(), retry_policy=policy.get("type") or "linear",
            retry_period=policy.get("period") or 3000, verification_hash=token(), verified=False,
        )  # fmt: skip

    def set(self, kind: str, document: Document, **fields: Any) -> None:
        """Change fields."""
        self._db[kind].update_one({"_id": document["_id"]}, {"$set": fields})

    def register(self, body: Json) -> None:
        """Take a registration; there may be several of a name."""
        personal = ("name", "first_name", "last_name", "organization", "description", "email")
        self._insert(
            "user_registrations", uuid=str(uuid.uuid4()), **{name: body.get(name) or "" for name in personal},
            status="pending", activation_token=token(), decline_comment="", registered_at=zulu(datetime.now(UTC)),
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
