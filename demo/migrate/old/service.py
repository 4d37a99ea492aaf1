"""The routes: `python -m demo.migrate.old.service --mongodb URI --kafka HOST:PORT --port N --cert PEM --key PEM`."""

import argparse
import asyncio
import base64
import json
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote

import pymongo
import uvicorn

from demo.migrate.old.broker import Broker, joined
from demo.migrate.old.documents import (
    FORBIDDEN,
    Caller,
    Changes,
    Document,
    Json,
    Refused,
    Views,
    metric,
    roles_in,
    zulu,
)

DATABASE = "argo_msg"
UNREADABLE = "Message retrieved from broker network has invalid JSON Structure"
NO_EXPORT = "Error exporting data to JSON"
_MEMBER = re.compile(r"/v1/projects/([\w-]+)/(topics|subscriptions|schemas)/([\w-]+)(?::(\w+))?")
_LIST = re.compile(r"/v1/projects/([\w-]+)/(topics|subscriptions|schemas)")
_OF_SERVICE = re.compile(r"/v1/(projects|users|registrations)(?:/([\w-]+))?(?::(\w+))?")
_CREATED = {("PUT", "topics", ""), ("PUT", "subscriptions", ""), ("POST", "schemas", "")}
_DECISIONS = {"accept": "accepted", "decline": "declined"}
Handler = Callable[["Request"], Awaitable[Any]]


class Request:
    def __init__(self, caller: Caller, document: Document, verb: str, body: bytes) -> None:
        self.caller, self.document, self.verb = caller, document, verb
        self._body = body

    @property
    def project(self) -> str:
        return str(self.caller.project["name"])

    @property
    def kafka(self) -> str:
        return f"{self.document['project_uuid']}.{self.document.get('topic') or self.document['name']}"

    def json(self, error: str) -> Json:
        """Return the body, whose names are matched without regard to case; refuse what is none."""
        try:
            said = json.loads(self._body)
        except ValueError:
            raise Refused(400, error) from None
        if not isinstance(said, dict):
            raise Refused(400, error)
        return {name.lower(): value for name, value in said.items()}


class Service:
    def __init__(self, database: Any, broker: Broker) -> None:
        self._db, self._broker = database, broker
        self._changes = Changes(database, broker)
        listed = ("topics", "subscriptions")
        self._handlers: dict[tuple[str, str, str], Handler] = {
            **{("GET", kind, ""): self._show for kind in (*listed, "schemas")},
            **{("GET", kind, "acl"): self._acl for kind in listed},
            **{("POST", kind, "modifyAcl"): self._change for kind in listed},
            **{("DELETE", kind, ""): self._change for kind in listed},
            ("GET", "topics", "metrics"): self._topic_metrics,
            ("POST", "topics", "publish"): self._publish,
            ("GET", "subscriptions", "offsets"): self._offsets,
            ("GET", "subscriptions", "metrics"): self._subscription_metrics,
            ("POST", "subscriptions", "pull"): self._pull,
            ("POST", "subscriptions", "acknowledge"): self._acknowledge,
            ("POST", "subscriptions", "modifyOffset"): self._modify_offset,
            ("POST", "subscriptions", "modifyAckDeadline"): self._change,
            ("POST", "subscriptions", "modifyPushConfig"): self._change,
        }

    async def __call__(self, scope: Json, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            part = await receive()
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        try:
            code, text = 200, _text(await self._answer(scope, body))
        except Refused as refused:
            code, text = refused.code, _text(refused.body)
        headers = [(b"content-type", b"application/json; charset=utf-8"), (b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    async def _answer(self, scope: Json, body: bytes) -> Any:
        method, path = scope["method"], unquote(scope["path"])
        query = {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()}
        token = dict(scope["headers"]).get(b"x-api-key", b"").decode() or query.get("key", "")
        if path == "/v1/version":
            return {"build_time": "", "golang": "", "compiler": "", "os": "", "architecture": ""}
        if not token:
            raise Refused(401, "Unauthorized")
        if found := _MEMBER.fullmatch(path):
            project, kind, name, verb = found[1], found[2], found[3], found[4] or ""
            if (method, kind, verb) in _CREATED:
                return await self._create(self._caller(token, f"{kind}:create", project), kind, name, body)
            handler = self._handlers.get((method, kind, verb))
            if handler is None:
                raise Refused(404, "404 page not found")
            action = verb or {"GET": "show", "DELETE": "delete"}[method]
            caller = self._caller(token, f"{kind}:{action}", project)
            return await handler(Request(caller, self._document(caller, kind, name), verb, body))
        if found := _LIST.fullmatch(path):
            return self._list(self._caller(token, f"{found[2]}:list", found[1]), found[2])
        if method == "GET":
            return self._of_the_service(token, path, query)
        return self._change_service(token, method, path, _said(body))

    def _caller(self, token: str, action: str, project: str = "") -> Caller:
        where = self._db.projects.find_one({"name": project}) if project else {}
        if where is None:
            raise Refused(404, "project doesn't exist")
        user = self._db.users.find_one({"token": token})
        roles = roles_in(user, where.get("uuid", "")) if user else frozenset()
        if not roles:
            raise Refused(401, "Unauthorized")
        allowed = {role for row in self._db.roles.find({"resource": action}) for role in row["roles"]}
        if not roles & allowed:
            raise Refused(403, FORBIDDEN)
        return Caller(user, where, roles)

    def _document(self, caller: Caller, kind: str, name: str) -> Document:
        found: Document | None = self._db[kind].find_one({"project_uuid": caller.project["uuid"], "name": name})
        if found is None:
            raise Refused(404, f"{kind[:-1].capitalize()} doesn't exist")
        return found

    def _of_the_service(self, token: str, path: str, query: dict[str, str]) -> Any:
        if path == "/v1/users/profile":
            user = self._db.users.find_one({"token": token})
            if user is None:
                raise Refused(401, "Unauthorized")
            return Views(self._db).user(user)
        if path.startswith("/v1/users:byToken/"):
            return self._user(token, "users:byToken", {"token": path.rpartition("/")[2]})
        if path.startswith("/v1/users/"):
            return self._user(token, "users:show", {"name": path.rpartition("/")[2]})
        if path == "/v1/users":
            self._caller(token, "users:list")
            views = Views(self._db)
            shown = [views.user(each, details=query.get("details") == "true") for each in views.all("users")]
            return {"users": shown, "nextPageToken": "", "totalSize": len(shown)}
        if path == "/v1/projects":
            self._caller(token, "projects:list")
            views = Views(self._db)
            return {"projects": [views.project(each) for each in views.all("projects")]}
        if path.startswith("/v1/projects/"):
            return Views(self._db).project(self._caller(token, "projects:show", path.rpartition("/")[2]).project)
        if path == "/v1/metrics/va_metrics":
            self._caller(token, "ams:vaMetrics")
            return self._published(*(datetime.fromisoformat(query[name]) for name in ("start_date", "end_date")))
        if path == "/v1/registrations":
            self._caller(token, "registrations:list")
            views = Views(self._db)
            return {"user_registrations": [views.registration(each) for each in self._db.user_registrations.find()]}
        raise Refused(404, "404 page not found")

    def _change_service(self, token: str, method: str, path: str, body: Json) -> Any:
        found = _OF_SERVICE.fullmatch(path)
        if found is None:
            raise Refused(404, "404 page not found")
        kind, name, verb = found.groups("")
        if (method, kind, verb) == ("POST", "projects", ""):
            return self._changes.create_project(self._caller(token, "projects:create"), name, body)
        if (method, kind, verb) == ("DELETE", "projects", ""):
            return self._changes.delete_project(self._caller(token, "projects:delete", name))
        if (method, kind, verb) == ("POST", "registrations", "") and not name:
            self._caller(token, "registrations:newUser")
            return self._changes.register(body)
        if kind == "registrations" and verb in _DECISIONS:
            caller = self._caller(token, "registrations:acceptNewUser")
            return self._changes.decide(caller, name, _DECISIONS[verb], body.get("comment", ""))
        if (method, kind, verb) == ("POST", "users", ""):
            return self._changes.create_user(self._caller(token, "users:create"), name, body)
        if (method, kind, verb) == ("POST", "users", "refreshToken"):
            self._caller(token, "users:refreshToken")
            return self._changes.refresh_token(name)
        if (method, kind, verb) == ("DELETE", "users", ""):
            self._caller(token, "users:delete")
            return self._changes.delete_user(name)
        raise Refused(404, "404 page not found")

    async def _create(self, caller: Caller, kind: str, name: str, body: bytes) -> Json:
        said = _said(body)
        if kind == "topics":
            self._changes.create_topic(caller, name, said)
        elif kind == "schemas":
            self._changes.create_schema(caller, name, said)
        else:
            await self._changes.create_subscription(caller, name, {key.lower(): value for key, value in said.items()})
        return self._shown(Views(self._db), kind, self._document(caller, kind, name), caller)

    async def _change(self, asked: Request) -> None:
        kind, changes = "subscriptions" if "topic" in asked.document else "topics", self._changes
        if asked.verb == "modifyAcl":
            changes.modify_acl(kind, asked.document, asked.json("Invalid ACL Arguments"))
        elif asked.verb == "modifyAckDeadline":
            deadline = asked.json("Invalid Arguments").get("ackdeadlineseconds", 0)
            changes.set(kind, asked.document, ack=deadline)
        elif asked.verb == "modifyPushConfig":
            changes.modify_push_config(asked.document, asked.json("Invalid Arguments").get("pushconfig") or {})
        else:
            changes.delete(kind, asked.document)

    def _published(self, first: datetime, last: datetime) -> Json:
        counts: Counter[str] = Counter()
        for each in self._db.daily_topic_msg_count.find({"date": {"$gte": first, "$lte": last}}):
            counts[each["project_uuid"]] += int(each["msg_count"])
        names = {each["uuid"]: each["name"] for each in self._db.projects.find()}
        shown = [{"project": names[each], "message_count": count} for each, count in counts.items() if each in names]
        return {"projects_metrics": {"projects": shown, "total_message_count": sum(counts.values())}}

    def _user(self, token: str, action: str, which: Json) -> Json:
        self._caller(token, action)
        user = self._db.users.find_one(which)
        if user is None:
            raise Refused(404, "User doesn't exist")
        return Views(self._db).user(user)

    def _list(self, caller: Caller, kind: str) -> Json:
        """Return what a project has of a kind; publishers and consumers see what they are on the list of."""
        views = Views(self._db)
        mine = [each for each in views.all(kind) if each["project_uuid"] == caller.project["uuid"]]
        role = {"topics": "publisher", "subscriptions": "consumer"}.get(kind, "")
        if role in caller.roles and not caller.roles & {"service_admin", "project_admin"}:
            mine = [each for each in mine if caller.uuid in (each.get("acl") or ())]
        shown = [self._shown(views, kind, each, caller) for each in mine]
        return {kind: shown} if kind == "schemas" else {kind: shown, "nextPageToken": "", "totalSize": len(shown)}

    def _shown(self, views: Views, kind: str, each: Document, caller: Caller) -> Json:
        project = caller.project["name"]
        if kind == "topics":
            return views.topic(each, project)
        return views.subscription(each, project) if kind == "subscriptions" else _schema(each, project)

    async def _show(self, asked: Request) -> Json:
        views, document = Views(self._db), asked.document
        kind = "subscriptions" if "topic" in document else "schemas" if "raw_schema" in document else "topics"
        return self._shown(views, kind, document, asked.caller)

    async def _acl(self, asked: Request) -> Json:
        return Views(self._db).acl(asked.document)

    def _must_be_listed(self, asked: Request, role: str) -> None:
        if role in asked.caller.roles and asked.caller.uuid not in (asked.document.get("acl") or ()):
            raise Refused(403, FORBIDDEN)

    async def _publish(self, asked: Request) -> Json:
        self._must_be_listed(asked, "publisher")
        messages = asked.json("Invalid Message Arguments").get("messages") or []
        ids = [await self._broker.publish(asked.kafka, each) for each in messages]
        size, now, document = sum(len(each.get("data") or "") for each in messages), _now(), asked.document
        before = document.get("latest_publish") or now
        rate = len(messages) / max((now - before.replace(tzinfo=UTC)).total_seconds(), 0.001)
        which = {"project_uuid": document["project_uuid"], "name": document["name"]}
        self._db.topics.update_one(which, {
            "$inc": {"msg_num": len(messages), "total_bytes": size},
            "$set": {"latest_publish": now, "publish_rate": rate},
        })  # fmt: skip
        day = {"date": now.replace(hour=0, minute=0, second=0, microsecond=0),
               "project_uuid": document["project_uuid"], "topic_name": document["name"]}  # fmt: skip
        self._db.daily_topic_msg_count.update_one(day, {"$inc": {"msg_count": len(messages)}}, upsert=True)
        return {"messageIds": ids}

    async def _pull(self, asked: Request) -> Json:
        document, caller = asked.document, asked.caller
        if document.get("push_type") and not caller.roles & {"push_worker", "service_admin"}:
            raise Refused(403, FORBIDDEN)
        self._must_be_listed(asked, "consumer")
        where = {"project_uuid": document["project_uuid"], "name": document["topic"]}
        if self._db.topics.find_one(where) is None:
            raise Refused(409, "Subscription's topic doesn't exist")
        said = asked.json("Invalid Pull Parameters Arguments")
        most = max(int(said.get("maxmessages") or 1), 1)
        offset = max(int(document["offset"]), (await self._broker.range(asked.kafka)).min)
        wait = said.get("returnimmediately") == "false"
        records = await self._broker.read(asked.kafka, offset, most, wait=wait)
        now = _now()
        self._db.subscriptions.update_one({"_id": document["_id"]}, {
            "$set": {"offset": offset, "next_offset": offset + len(records), "pending_ack": zulu(now),
                     "latest_consume": now, "consume_rate": float(len(records))},
            "$inc": {"msg_num": len(records), "total_bytes": sum(map(len, records))},
        })  # fmt: skip
        name = f"projects/{asked.project}/subscriptions/{document['name']}"
        return {"receivedMessages": [_received(name, offset + place, each) for place, each in enumerate(records)]}

    async def _acknowledge(self, asked: Request) -> Json:
        document = asked.document
        ids = asked.json("Invalid ack parameter").get("ackids") or []
        prefix = f"projects/{asked.project}/subscriptions/{document['name']}:"
        if not ids or not all(re.fullmatch(re.escape(prefix) + r"\d+", each) for each in ids):
            raise Refused(400, "Invalid ack id")
        end, handed = max(int(each.rpartition(":")[2]) for each in ids) + 1, int(document.get("next_offset") or 0)
        if not handed:
            raise Refused(500, "no ack pending")
        if end <= document["offset"] or end > handed:
            raise Refused(500, "wrong ack")
        out = _now().replace(microsecond=0) - datetime.fromisoformat(document["pending_ack"])
        if out.total_seconds() > document["ack"]:
            raise Refused(408, "ack timeout")
        self._place(document, end)
        return {}

    async def _modify_offset(self, asked: Request) -> None:
        offset, kept = asked.json("Invalid Offset Arguments").get("offset", 0), await self._broker.range(asked.kafka)
        self._place(asked.document, offset)
        if not kept.min <= offset <= kept.max:
            raise Refused(400, "Offset out of bounds")

    def _place(self, document: Document, offset: int) -> None:
        moved = {"offset": offset, "next_offset": 0, "pending_ack": ""}
        self._db.subscriptions.update_one({"_id": document["_id"]}, {"$set": moved})

    async def _offsets(self, asked: Request) -> Json:
        kept = await self._broker.range(asked.kafka)
        if asked.document["offset"] < kept.min:
            self._place(asked.document, kept.min)
        return {"max": kept.max, "min": kept.min, "current": max(int(asked.document["offset"]), kept.min)}

    async def _topic_metrics(self, asked: Request) -> Json:
        each, now = asked.document, zulu(_now())
        name = each["name"]
        which = {"project_uuid": each["project_uuid"], "topic": name}
        days = list(self._db.daily_topic_msg_count.find({"project_uuid": each["project_uuid"], "topic_name": name}))
        daily = sorted(((f"{day['date']:%Y-%m-%d}", int(day["msg_count"])) for day in days), reverse=True)[:30]
        return {"metrics": [
            metric("topic.number_of_subscriptions", "counter", name,
                   [(now, self._db.subscriptions.count_documents(which))]),
            metric("topic.number_of_messages", "counter", name, [(now, int(each.get("msg_num") or 0))]),
            metric("topic.number_of_bytes", "counter", name, [(now, int(each.get("total_bytes") or 0))]),
            metric("topic.number_of_daily_messages", "counter", name, list(daily)),
            metric("topic.publishing_rate", "rate", name,
                   [(zulu(each.get("latest_publish")), each.get("publish_rate") or 0.0)], "float64"),
        ]}  # fmt: skip

    async def _subscription_metrics(self, asked: Request) -> Json:
        self._must_be_listed(asked, "consumer")
        each, now = asked.document, zulu(_now())
        name = each["name"]
        return {"metrics": [
            metric("subscription.number_of_messages", "counter", name, [(now, int(each.get("msg_num") or 0))]),
            metric("subscription.number_of_bytes", "counter", name, [(now, int(each.get("total_bytes") or 0))]),
            metric("subscription.consumption_rate", "rate", name,
                   [(zulu(each.get("latest_consume")), each.get("consume_rate") or 0.0)], "float64"),
        ]}  # fmt: skip


def _received(subscription: str, offset: int, value: bytes) -> Json:
    try:
        said = json.loads(value)
    except ValueError:
        raise Refused(500, UNREADABLE) from None
    if not isinstance(said, dict) or not isinstance(said.get("attributes", {}), dict):
        raise Refused(500, UNREADABLE)
    try:
        message = {**said, **joined(said.get("attributes")), "messageId": str(offset)}
    except ValueError:
        raise Refused(500, NO_EXPORT) from None
    return {"ackId": f"{subscription}:{offset}", "message": message}


def _text(said: Any) -> bytes:
    try:
        return b"" if said is None else json.dumps(said, indent=3, allow_nan=False).encode()
    except ValueError:
        raise Refused(500, NO_EXPORT) from None


def _said(body: bytes) -> Json:
    said: Json = json.loads(body or b"{}")
    return said


def _schema(each: Document, project: str) -> Json:
    """Return a schema; one that cannot be read lets the whole list fail."""
    try:
        said = json.loads(base64.b64decode(each["raw_schema"], validate=True))
    except ValueError:
        raise Refused(500, "Could not load the schema") from None
    named = {"name": f"projects/{project}/schemas/{each['name']}", "type": each["type"]}
    return {"uuid": each["uuid"], **named, "schema": said}


def _now() -> datetime:
    return datetime.now(UTC)


async def _serve(options: argparse.Namespace) -> None:
    broker = Broker(options.kafka)
    await broker.start()
    service = Service(pymongo.MongoClient[Json](options.mongodb)[DATABASE], broker)
    config = uvicorn.Config(
        service, host="127.0.0.1", port=options.port, http="httptools", ws="none", lifespan="off", access_log=False,
        log_level="warning", ssl_certfile=options.cert, ssl_keyfile=options.key, timeout_keep_alive=120,
    )  # fmt: skip
    await uvicorn.Server(config).serve()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.migrate.old.service")
    for name in ("--mongodb", "--kafka", "--cert", "--key"):
        parser.add_argument(name, required=True)
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(_serve(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
