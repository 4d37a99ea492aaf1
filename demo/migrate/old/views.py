"""Documents as the API shows them, errors in its envelope, and whom a request is from."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

Json = dict[str, Any]
Document = Mapping[str, Any]
STATUS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND", 408: "TIMEOUT", 409: "CONFLICT",
    500: "INTERNAL_SERVER_ERROR",
}  # fmt: skip
FORBIDDEN = "Access to this resource is forbidden"


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.body: Json = {"error": {"code": code, "message": message, "status": STATUS[code]}}


class Caller(NamedTuple):
    """Whom a request is from, and in which project."""

    user: Mapping[str, Any]
    project: Mapping[str, Any]
    """Empty outside of projects."""
    roles: frozenset[str]

    @property
    def uuid(self) -> str:
        """Return the uuid of the user."""
        return str(self.user["uuid"])

    @property
    def sees_all(self) -> bool:
        """Return whether secrets of others are shown."""
        return "service_admin" in self.roles


def roles_in(user: Mapping[str, Any], project_uuid: str) -> frozenset[str]:
    """Return the roles of a user: those of the service, and in a project those of the last entry there is for it."""
    found: Sequence[str] = ()
    for each in user.get("projects") or ():
        if project_uuid and each.get("project_uuid") == project_uuid:
            found = each.get("roles") or ()
    return frozenset([*found, *(user.get("service_roles") or ())])


def zulu(moment: Any) -> str:
    """Return a date as answers have it; the year 1 stands for never."""
    return f"{moment or datetime(1, 1, 1):%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0")


def without_empty(fields: Json) -> Json:
    """Return the fields that are shown: empty ones are not."""
    return {name: value for name, value in fields.items() if value}


class Views:
    """Documents with the names of what they refer to, each collection read when it is first needed."""

    def __init__(self, database: Any) -> None:
        self._db = database

    def _all(self, collection: str, order: int) -> Sequence[Document]:
        return list(self._db[collection].find().sort("_id", order))

    @cached_property
    def users(self) -> Sequence[Document]:
        """Return all users, the newest first."""
        return self._all("users", -1)

    @cached_property
    def projects(self) -> Sequence[Document]:
        """Return all projects, the oldest first."""
        return self._all("projects", 1)

    @cached_property
    def topics(self) -> Sequence[Document]:
        """Return all topics, the newest first."""
        return self._all("topics", -1)

    @cached_property
    def subscriptions(self) -> Sequence[Document]:
        """Return all subscriptions, the newest first."""
        return self._all("subscriptions", -1)

    @cached_property
    def schemas(self) -> Sequence[Document]:
        """Return all schemas, the oldest first."""
        return self._all("schemas", 1)

    @cached_property
    def _users(self) -> Mapping[Any, str]:
        return {each["uuid"]: each["name"] for each in self.users}

    @cached_property
    def _projects(self) -> Mapping[Any, str]:
        return {each["uuid"]: each["name"] for each in self.projects}

    @cached_property
    def _schemas(self) -> Mapping[Any, Document]:
        return {each["uuid"]: each for each in self.schemas}

    def project(self, each: Document) -> Json:
        """Return a project."""
        return without_empty({
            "name": each["name"], "created_on": zulu(each.get("created_on")),
            "modified_on": zulu(each.get("modified_on")), "description": each.get("description"),
            "created_by": self._users.get(each.get("created_by"), ""),
        })  # fmt: skip

    def user(self, each: Document, *, full: bool = True, details: bool = True) -> Json:
        """Return a user."""
        personal = {name: each.get(name) for name in ("first_name", "last_name", "organization", "description")}
        memberships = [self._membership(each["uuid"], entry) for entry in each.get("projects") or ()] if details else []
        return {
            "uuid": each["uuid"], **without_empty({"projects": memberships}), "name": each["name"],
            **without_empty(personal), **without_empty({"token": each["token"] if full else ""}),
            "email": each.get("email") or "", "service_roles": (each.get("service_roles") or []) if full else [],
            "created_on": zulu(each.get("created_on")), "modified_on": zulu(each.get("modified_on")),
            **without_empty({"created_by": self._users.get(each.get("created_by"), "") if full else ""}),
        }  # fmt: skip

    def _membership(self, user: str, entry: Document) -> Json:
        where = entry.get("project_uuid")
        return {
            "project": self._projects.get(where, ""), "roles": entry.get("roles") or [],
            "topics": self._listed("topics", where, user), "subscriptions": self._listed("subscriptions", where, user),
        }  # fmt: skip

    def _listed(self, collection: str, project: Any, user: str) -> list[str]:
        """Return the names of what has the user on its access list."""
        found = self._db[collection].find({"project_uuid": project, "acl": user}, {"name": 1}).sort("_id", -1)
        return [each["name"] for each in found]

    def topic(self, each: Document, project: str) -> Json:
        """Return a topic."""
        schema = self._schemas.get(each.get("schema_uuid"))
        return {
            "name": f"/projects/{project}/topics/{each['name']}",
            **({"schema": f"projects/{project}/schemas/{schema['name']}"} if schema else {}),
            "created_on": zulu(each.get("created_on")),
        }

    def subscription(self, each: Document, project: str) -> Json:
        """Return a subscription, with all the secrets it has."""
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
        """Return an access list: who is gone is not shown."""
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
    """Return a metric."""
    scope = name.partition(".")[0]
    series = [{"timestamp": when, "value": what} for when, what in points]
    return {
        "metric": name, "metric_type": kind, "value_type": value, "resource_type": scope, "resource_name": resource,
        "timeseries": series, "description": name,
    }  # fmt: skip
