"""An installation with every kind of resource, read over HTTP, for tests that move it."""

import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from ams.app.lifecycle import running
from ams.app.moving.exporter import Installation
from ams.app.wiring.engines import open_engines
from ams.core.clock import DAY, Clock, Milliseconds, day_of, day_text, publish_time
from ams.core.iam import RoleBinding
from ams.core.issuer import Issuer, RoleRule
from ams.core.messages import message
from ams.core.names import Offset, SubscriptionId, new_topic_id, new_uuid
from ams.core.offsets import bitmap_of
from ams.core.parallel_options import DeadLetterPolicy, ParallelOptions
from ams.core.rights import Right
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.core.versions import ANY_VERSION
from ams.storage.files import Disk
from ams.storage.registry.records import SchemaContent, SchemaUse, UserDetails
from ams.storage.registry.registry import Registry
from tests.storage.registry.makers import create_topic, new_subscription
from tests.support.clock import ManualClock
from tests.support.program_keys import public_key
from tests.support.waiting import PATIENCE_SECONDS

ADMIN = "a service token of the tests"
Answers = dict[str, tuple[int, str]]  # status and body of answers, by what was asked

EXPIRY = Milliseconds(4_000_000_000_000)
ISSUER = Issuer(
    "full", "https://full.example/realm", audiences=("ams",), clients=("app",), introspect="opaque",
    client_id="ams", client_secret="a secret at an issuer", create_users=True,
    roles=(RoleRule("urn:mace:example.org:group:vo:role=member", "P", ("publisher",)),),
)  # fmt: skip
TOPICS = ("full", "partly", "quiet", "emptied")
GOOGLES = "a.b~c+d%25-e"  # name of a topic, a subscription and a schema that a client of Google's made
SUBS = ("fresh", "halfway", "behind", "done", "of-a-topic-that-is-gone", "pushed", "parallel")


def settings(data: Path, **more: object) -> Settings:
    usual: dict[str, Any] = {
        "data": str(data), "port": 0, "ops_port": 0, "min_free_bytes": 0, "reserve_bytes": 0, "pull_wait": 0.05,
        "service_token": ADMIN, "push_enabled": True, "push_worker_token": "a push worker of the tests",
        "segment_bytes": 1 << 20,
    }  # fmt: skip
    return Settings(**(usual | more))


def ignore_start(_: str) -> None:
    """Ignore progress reports of a start."""


@contextlib.asynccontextmanager
async def installation(data: Path, clock: Clock, **more: object) -> AsyncIterator[Installation]:
    async with open_engines(settings(data, **more), clock, Disk(), ignore_start, Supervisor()) as engines:
        yield Installation(engines.registry, engines.log, engines.cursors)


class Api(httpx.AsyncClient):
    async def answer(self, method: str, path: str, body: object = None, token: str = ADMIN) -> httpx.Response:
        return await self.request(method, f"/v1{path}", json=body, headers={"x-api-key": token})

    async def ask(self, method: str, path: str, body: object = None, token: str = ADMIN) -> Any:
        answer = await self.answer(method, path, body, token)
        assert answer.status_code == 200, (method, path, answer.text)
        return answer.json() if answer.content else None

    async def publish(self, topic: str, *texts: str) -> Any:
        messages = [
            {
                "attributes": {"n": text, "é": '"'},
                "data": base64.b64encode(f'"{text}"'.encode()).decode(),
                "orderingKey": f'"{number}' if number % 3 else "",
            }
            for number, text in enumerate(texts)
        ]
        return await self.ask("POST", f"/projects/P/topics/{topic}:publish", {"messages": messages})

    async def pull(self, sub: str, most: int) -> list[Any]:
        body = {"maxMessages": str(most), "returnImmediately": "true"}
        return list((await self.ask("POST", f"/projects/P/subscriptions/{sub}:pull", body))["receivedMessages"])

    async def acknowledge(self, sub: str, ack_id: str) -> None:
        await self.ask("POST", f"/projects/P/subscriptions/{sub}:acknowledge", {"ackIds": [ack_id]})


@contextlib.asynccontextmanager
async def service(data: Path, clock: Clock, **more: object) -> AsyncIterator[Api]:
    async with (running(settings(data, **more), Supervisor(), clock=clock) as run,
                Api(base_url=run.base_url, trust_env=False, timeout=PATIENCE_SECONDS) as api):  # fmt: skip
        yield api


async def furnished_folder(data: Path, clock: ManualClock) -> tuple[Answers, str]:
    """Make an installation with every kind of resource; return the API's answers, and a named token."""
    async with service(data, clock) as api:
        await _furnish(api, clock)
    async with installation(data, clock) as opened:
        named = await _furnish_without_service(opened)
    async with service(data, clock) as api:  # when acknowledgements were is told until a restart only
        return await api_answers(api, clock), named


async def _furnish(api: Api, clock: ManualClock) -> None:
    for number in range(3):
        clock.advance(1000)
        await api.ask("POST", f"/users/user-{number}", {"email": f"{number}@example.org", "service_roles": []})
    for project in ("P", "Q", "empty"):
        await api.ask("POST", f"/projects/{project}", {"description": f"the project {project}"})
    await api.ask("POST", "/projects/P:modifyQuotas", {"quotas": {"members": 50, "schemas": 0}})
    await api.ask("PUT", "/projects/P", {"strictData": True})
    for number, roles in enumerate((["project_admin"], ["publisher", "consumer"], [])):
        await api.ask("POST", f"/projects/P/members/user-{number}:add", {"project": "P", "roles": roles})
    token = (await api.ask("GET", "/users/user-0"))["token"]
    await _schemas(api)
    await api.ask("PUT", "/projects/P/topics/full", {"schema": "projects/P/schemas/renamed"}, token)
    for topic in (*TOPICS[1:], "going"):
        clock.advance(10)
        await api.ask("PUT", f"/projects/P/topics/{topic}", {})
    await api.ask("PUT", "/projects/Q/topics/full", {})
    await api.ask("POST", "/projects/P/topics/partly:modifyAcl", {"authorized_users": ["user-2", "user-1"]})
    await _subscribe(api)
    await _publish(api, clock)
    await api.ask("DELETE", "/projects/P/topics/going")
    await _register(api)


async def _furnish_without_service(opened: Installation) -> str:
    """Make what no single request makes: done ranges, labels, named tokens, bindings and issuers.

    Returns a token of user-1 that may publish to one topic.
    """
    registry = opened.registry
    await _label(registry)
    await _make_as_google(opened)
    parallel = next(each for each in await registry.subscriptions.all() if each.name == "parallel")
    topic = (await opened.cursors.places())[parallel.id].topic
    ranges = [(Offset(60), Offset(90)), (Offset(95), Offset(97))]
    await opened.cursors.restore(parallel.id, topic, Offset(50), bitmap_of(ranges))
    users = [await registry.users.by_name(f"user-{number}") for number in range(3)]
    root, anna, bert = (each.id for each in users if each is not None)
    right = (Right("topics:publish", "projects/P/topics/full"),)
    made, text = await registry.named_tokens.create(anna, "publisher", expires_on=EXPIRY, rights=right, created_by=root)
    await registry.named_tokens.create(bert, "laptop", expires_on=None, rights=None, created_by=None)
    await registry.named_tokens.create(
        bert, "program", expires_on=None, rights=right, created_by=root, key=public_key()
    )
    await registry.named_tokens.note_uses({made.id: Milliseconds(1_700_000_000_123)})
    await registry.bindings.create(anna, "b", ISSUER.url, "alice", created_by=root)
    await registry.bindings.first_login("by-login", UserDetails(), {}, ISSUER.url, "bob")
    await registry.issuers.create(ISSUER, root)
    await registry.issuers.create(Issuer("plain", "https://plain.example", audiences=("ams",)), None)
    return text


async def _label(registry: Registry) -> None:
    project = await registry.projects.find("P")
    assert project is not None
    schema = await registry.schemas.find(project.id, "first")
    assert schema is not None
    await registry.schemas.delete_revision(schema.id, schema.revision)
    await registry.topics.set_schema(project.id, "partly", schema.name, SchemaUse("JSON", 1))
    await registry.topics.set_labels(project.id, "partly", {"of": "a topic"})
    await registry.subscriptions.set_labels(project.id, "working", {"of": "a subscription"})
    await registry.snapshots.update(project.id, "before", labels={"of": "a snapshot"})


async def _make_as_google(opened: Installation) -> None:
    registry = opened.registry
    project = await registry.projects.find("P")
    assert project is not None
    await registry.schemas.create(project.id, GOOGLES, SchemaContent("avro", '{"type": "string"}', None))
    topic = new_topic_id()
    await opened.log.create(topic, label=f"P.{GOOGLES}")
    await create_topic(registry, project.id, GOOGLES, GOOGLES, id=topic)
    await opened.log.append(topic, [message("MQ=="), message("Mg==")])
    subscription = SubscriptionId(new_uuid())
    await opened.cursors.create(subscription, topic, Offset(1))
    options = ParallelOptions(dead_letter_policy=DeadLetterPolicy(GOOGLES, 5))
    await new_subscription(registry, project, GOOGLES, GOOGLES, id=subscription, parallel=options)
    bindings = (RoleBinding("roles/pubsub.viewer", ("group:ops@example.com",), {"expression": "true"}),)
    for kind in ("topics", "subscriptions", "schemas"):
        await registry.policies.set(kind, project.id, GOOGLES, "", bindings, ANY_VERSION)


async def _schemas(api: Api) -> None:
    for name, kind in (("first", "string"), ("second", "number")):
        await api.ask("POST", f"/projects/P/schemas/{name}", {"type": "json", "schema": {"type": kind}})
    await api.ask(
        "PUT", "/projects/P/schemas/second", {"name": "projects/P/schemas/renamed", "schema": {"type": "string"}}
    )
    await api.ask("PUT", "/projects/P/schemas/first", {"schema": {"type": ["string", "null"]}})


async def _subscribe(api: Api) -> None:
    topics = {"behind": "partly", "of-a-topic-that-is-gone": "going"}
    for sub in SUBS:
        body: dict[str, object] = {"topic": f"projects/P/topics/{topics.get(sub, 'full')}", "ackDeadlineSeconds": 33}
        if sub == "pushed":
            body["pushConfig"] = {
                "type": "http_endpoint", "pushEndpoint": "https://receiver.example.org/push",
                "deadLetterTopic": "partly", "retryPolicy": {"type": "exponential"},
            }  # fmt: skip
        if sub == "parallel":
            body |= {"type": "parallel", "filter": "attributes:n", "retryPolicy": {}, "retainAckedMessages": True}
        await api.ask("PUT", f"/projects/P/subscriptions/{sub}", body)
    for _ in range(2):
        await api.ask("POST", "/projects/P/subscriptions/pushed:rotatePushSecret", {"keepSeconds": 30 * 86_400})
    await api.ask("POST", "/projects/P/subscriptions/fresh:modifyAcl", {"authorized_users": ["user-1", "user-0"]})


async def _publish(api: Api, clock: ManualClock) -> None:
    """Publish over ten days; retention deletes what is older than a week."""
    await api.publish("emptied", "a", "b", "c")
    for day in range(10):
        await api.publish("going", "x")
        for request in range(3):
            await api.publish("full", *(f"{day}-{request}-{number}" for number in range(5)))
            clock.advance(1234)
        await api.publish("partly", str(day))
        clock.advance(DAY - 5000)
    for sub, messages in (("halfway", 20), ("done", 200), ("behind", 1), ("of-a-topic-that-is-gone", 2)):
        pulled = await api.pull(sub, messages)
        await api.acknowledge(sub, pulled[-1]["ackId"])
    await api.pull("halfway", 7)
    await api.ask("PUT", "/projects/P/subscriptions/working", {"topic": "projects/P/topics/quiet", "type": "parallel"})
    await api.ask("PUT", "/projects/P/snapshots/before", {"subscription": "working"})


async def _register(api: Api) -> None:
    for name in ("pending", "declined", "accepted"):
        person = {"first_name": name, "last_name": "b", "organization": "c", "description": "d"}
        made = await api.ask("POST", "/registrations", {"name": name, "email": f"{name}@example.org", **person})
        if name != "pending":
            word = {"declined": "decline", "accepted": "accept"}[name]
            await api.ask("POST", f"/registrations/{made['uuid']}:{word}", {"comment": "no"})


async def api_answers(api: Api, clock: ManualClock) -> Answers:
    topics = [f"/projects/P/topics/{quote(each)}" for each in (*TOPICS, GOOGLES)]
    subs = [f"/projects/P/subscriptions/{quote(each)}" for each in (*SUBS, GOOGLES)]
    paths = [
        "/users?pageSize=1000", "/users?details=true", "/projects", "/registrations",
        _window(clock), "/projects/P/members?details=true",
        "/projects/P/schemas", "/projects/P:metrics", "/projects/P/topics", "/projects/P/subscriptions",
        "/projects/P/snapshots", "/projects/Q/topics", "/projects/P/topics/full/subscriptions",
        *(topic + end for topic in topics for end in ("", ":acl", ":metrics", ":offsets", ":read?max=1000")),
        *(sub + end for sub in subs for end in ("", ":acl", ":metrics", ":doctor")),
    ]  # fmt: skip
    for sub in subs[:4]:
        paths += [f"{sub}:offsets", *(f"{sub}:timeToOffset?time={time}" for time in _times(clock))]
    answers = {path: await api.answer("GET", path) for path in paths}
    return {path: (answer.status_code, answer.text) for path, answer in answers.items()}


def _window(clock: ManualClock) -> str:
    first, last = (day_text(day_of(clock.now + days * DAY)) for days in (-20, 1))
    return f"/metrics/va_metrics?start_date={first}&end_date={last}"


def _times(clock: ManualClock) -> list[str]:
    moments = [clock.now - DAY * day - shift for day in range(11) for shift in (0, 1, 5000, 5001, 6234, 8702)]
    return [publish_time(each) for each in moments]
