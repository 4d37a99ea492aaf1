"""Names that only Google's clients use, wherever a topic, subscription or schema is named."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from google.iam.v1 import iam_policy_pb2

from ams.client import Client, Message, wire
from ams.tables.table import open_table
from tests.pubsub.conftest import World
from tests.support.commands import Ran, run_ams
from tests.support.waiting import wait_until

WORST_NAMES = ("a.b~c+d%25-e", "a%2Fb", "ends.", "x%~+" * 63 + "%%%")


def path_of(kind: str, leaf: str, project: str) -> str:
    return f"/v1/projects/{project}/{kind}/{quote(leaf, safe='')}"


def cli(world: World, folder: Path, *words: str, **variables: str) -> Ran:
    others = {name: value for name, value in os.environ.items() if name[:4] != "AMS_"}
    own = {"AMS_ENDPOINT": world.service.base_url, "AMS_TOKEN": world.service.token, "AMS_PROJECT": world.project}
    return run_ams(words, others | own | {"HOME": str(folder)} | variables, folder=folder)


def by_googles(world: World, leaf: str, _: Path) -> None:
    topic, subscription, snapshot = world.topic(leaf), world.subscription(leaf), world.snapshot(leaf)
    assert [e.name for e in world.publisher.list_topics(request={"project": f"projects/{world.project}"})] == [topic]
    assert list(world.publisher.list_topic_subscriptions(request={"topic": topic})) == [subscription]
    world.publisher.publish(topic, b"1").result()
    made = world.subscriber.create_snapshot(request={"name": snapshot, "subscription": subscription})
    assert world.subscriber.get_snapshot(request={"snapshot": snapshot}) == made
    (got,) = world.pull(subscription)
    world.subscriber.acknowledge(request={"subscription": subscription, "ack_ids": [got.ack_id]})
    world.subscriber.seek(request={"subscription": subscription, "snapshot": snapshot})
    assert [each.message.data for each in world.pull(subscription)] == [b"1"]
    granted = world.publisher.test_iam_permissions(
        request=iam_policy_pb2.TestIamPermissionsRequest(resource=topic, permissions=["pubsub.topics.publish"])
    )
    assert granted.permissions == ["pubsub.topics.publish"]


def by_http(world: World, leaf: str, _: Path) -> None:
    """On one connection, so that hot requests take the lane as well."""
    topic, subscription = path_of("topics", leaf, world.project), path_of("subscriptions", leaf, world.project)
    with httpx.Client(base_url=world.service.base_url, headers={"x-api-key": world.service.token}) as http:
        assert http.get(topic).json()["name"] == f"/projects/{world.project}/topics/{leaf}"
        for number in range(3):
            sent = http.post(f"{topic}:publish", json={"messages": [{"data": "MQ=="}]})
            assert sent.json() == {"messageIds": [str(number)]}
            given = http.post(f"{subscription}:pull", json={"maxMessages": "1"}).json()["receivedMessages"]
            assert given[0]["ackId"].startswith(f"projects/{world.project}/subscriptions/{leaf}:{number}-")
            answer = http.post(f"{subscription}:acknowledge", json={"ackIds": [given[0]["ackId"]]})
            assert (answer.status_code, answer.json()) == (200, {})
        for path in (
            *(f"{each}:{verb}" for each in (topic, subscription) for verb in ("offsets", "metrics", "acl")),
            f"{topic}/subscriptions", f"{subscription}:doctor", f"{topic}:read?subscription={quote(leaf, safe='')}",
            f"/v1/projects/{world.project}:history?span=hour&topics={quote(leaf, safe='')}",
        ):  # fmt: skip
            assert http.get(path).status_code == 200, path
        refused = http.put(path_of("topics", f"{leaf[:250]}.x", world.project))
        assert refused.json()["error"]["message"] == "Invalid topic name"
        assert http.get(path_of("topics", f"{leaf[:250]}.x", world.project)).status_code == 404
        asked = {"action": "topics:create", "resource": f"/projects/{world.project}"}
        made = f"/projects/{world.project}/topics/{leaf}"  # lines of the audit log are stored a moment later
        wait_until(lambda: made in http.get("/v1/audit", params=asked).text.replace("\\", ""))


def by_the_client(world: World, leaf: str, _: Path) -> None:
    with Client(world.service.base_url, world.service.token) as client:
        here = client.project(world.project)
        assert here.topic(leaf).publish([Message(b"a")]) == ["0"]
        (got,) = here.subscription(leaf).pull()
        here.subscription(leaf).acknowledge([got.ack_id])
        changed = here.subscription(leaf).update(wire.SubscriptionChanges(retry_policy=wire.RetryBackoff("1s")))
        assert changed.name == f"/projects/{world.project}/subscriptions/{leaf}"


def by_commands(world: World, leaf: str, folder: Path) -> None:
    policy = {"bindings": [{"role": "roles/pubsub.viewer", "members": ["group:ops@example.com"]}]}
    world.publisher.set_iam_policy(request={"resource": world.topic(leaf), "policy": policy})
    shown = cli(world, folder, "acl", "show", f"topics/{leaf}").stdout
    assert "roles/pubsub.viewer: group:ops@example.com (without effect)" in shown
    for words in (
        ["topics", "show", leaf], ["subs", "show", leaf], ["publish", leaf, "--data", "hello"], ["pull", leaf, "--ack"],
        ["schemas", "show", leaf],
    ):  # fmt: skip
        ran = cli(world, folder, *words)
        assert (ran.returncode, ran.stderr) == (0, ""), words
    line = f"ams topics show {leaf[:2]}"
    offered = cli(world, folder, _AMS_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD="3")
    assert offered.stdout.split() == [leaf]


def in_a_document(world: World, leaf: str, folder: Path) -> None:
    (folder / "wanted.yaml").write_text(
        f"projects:\n  {world.project}:\n    topics:\n      {leaf!r}:\n        retention: 2d\n"
        f"    subscriptions:\n      {leaf!r}: {{topic: {leaf!r}, type: parallel, ackDeadline: 77}}\n"
    )
    ran = cli(world, folder, "apply", "-f", "wanted.yaml", "--yes")
    assert ran.returncode == 0, ran.stderr
    assert world.subscriber.get_subscription(subscription=world.subscription(leaf)).ack_deadline_seconds == 77


def in_rights(world: World, leaf: str, folder: Path) -> None:
    made = cli(world, folder, "token", "create", world.project, "--publish", leaf, "-o", "json")
    assert made.returncode == 0, made.stderr
    with Client(world.service.base_url, json.loads(made.stdout)["token"]) as client:
        assert client.project(world.project).topic(leaf).publish([Message(b"a")]) == ["0"]


def for_dead_letters(world: World, leaf: str, _: Path) -> None:
    policy = {"dead_letter_topic": world.topic(leaf), "max_delivery_attempts": 5}
    made = world.subscriber.create_subscription(
        request={"name": world.subscription("other"), "topic": world.topic(leaf), "dead_letter_policy": policy}
    )
    assert made.dead_letter_policy.dead_letter_topic == world.topic(leaf)


def with_push(world: World, leaf: str, _: Path) -> None:
    config = {"push_endpoint": "http://localhost:9/"}
    world.subscriber.modify_push_config(request={"subscription": world.subscription(leaf), "push_config": config})
    assert world.http("GET", f"/subscriptions/{quote(leaf, safe='')}:pushStatus")["pushStatus"]


def with_a_schema(world: World, leaf: str, _: Path) -> None:
    path = f"/topics/{quote(leaf, safe='')}"
    schema = f"projects/{world.project}/schemas/{leaf}"
    world.http("POST", f"{path}:attachSchema", {"schema": schema})
    assert world.http("GET", path)["schema"] == schema
    assert [each.name for each in world.schemas.list_schemas(parent=f"projects/{world.project}")] == [schema]
    again = {"name": schema, "schema": {"type": "int"}}
    assert world.http("PUT", f"/schemas/{quote(leaf, safe='')}", again)["name"] == schema


def in_an_archive(world: World, leaf: str, folder: Path) -> None:
    world.publisher.publish(world.topic(leaf), b"1").result()
    ran = cli(world, folder, "archive", str(folder / "archive"), leaf)
    assert ran.returncode == 0, ran.stderr
    assert [each.partition["topic"] for each in open_table(str(folder / "archive")).files] == [leaf]


PLACES = (
    by_googles, by_http, by_the_client, by_commands, in_a_document, in_rights, for_dead_letters, with_push,
    with_a_schema, in_an_archive,
)  # fmt: skip


@pytest.mark.parametrize("leaf", WORST_NAMES, ids=lambda leaf: leaf[:12])
@pytest.mark.parametrize("place", PLACES)
def test_googles_names_are_found(world: World, tmp_path: Path, place: Callable[[World, str, Path], None], leaf: str):
    world.publisher.create_topic(request={"name": world.topic(leaf)})
    world.subscriber.create_subscription(request={"name": world.subscription(leaf), "topic": world.topic(leaf)})
    world.schemas.create_schema(request={
        "parent": f"projects/{world.project}",
        "schema_id": leaf,
        "schema": {"type_": "AVRO", "definition": '{"type": "string"}'},
    })  # fmt: skip
    place(world, leaf, tmp_path)
