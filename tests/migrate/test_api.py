"""The reference by its API alone: ours stands for it where both are the same, behind a front with its failures."""

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ams.client import Retry
from ams.core.errors import Unavailable
from ams.core.messages import Stored, parse
from ams.migrate.converting import Bounds, Converted, kafka_topic, project_uuid
from ams.migrate.documents import Documents
from ams.migrate.sources import Place, opened
from ams.migrate.writing import plan
from tests.migrate.cuts import Starter
from tests.support.commands import Ran, run_ams
from tests.support.old_api import BACKEND, OldApi, old_api
from tests.support.service import LiveService, live_service

pytestmark = pytest.mark.acceptance

MESSAGES, GONE = 70, 3
HASTY = Retry(attempts=3, total=5, first=0.01, longest=0.02)
READINGS = kafka_topic(project_uuid("EGI"), "readings")


def ask(service: LiveService, method: str, path: str, body: object = None, token: str = "") -> Any:
    answer = httpx.request(
        method, f"{service.base_url}/v1{path}", headers={"x-api-key": token or service.token}, json=body,
        trust_env=False,
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    return answer.json() if answer.text else None


def fill(service: LiveService) -> None:
    """Make some of everything."""
    project, roles = "/projects/EGI", [{"project": "EGI", "roles": ["publisher", "consumer"]}]
    ask(service, "POST", project, {"description": "sites"})
    ask(service, "POST", "/users/ann", {"email": "ann@egi.example", "projects": roles, "first_name": "Ann"})
    ask(service, "POST", "/users/bob", {"service_roles": ["metrics_viewer"], "projects": roles})
    ask(service, "POST", "/registrations", {"name": "eve", "email": "eve@egi.example"})
    schema = {"type": "object", "properties": {"site": {"type": "string"}}}
    ask(service, "POST", f"{project}/schemas/sited", {"type": "json", "schema": schema})
    for topic, said in (("readings", None), ("sited", {"schema": "projects/EGI/schemas/sited"}), ("silent", None)):
        ask(service, "PUT", f"{project}/topics/{topic}", said)
    ask(service, "POST", f"{project}/topics/readings:modifyAcl", {"authorized_users": ["bob", "ann"]})
    push = {"type": "http_endpoint", "pushEndpoint": "https://endpoint.egi.example/in", "base64Decode": True}
    for name, said in (("archive", {"ackDeadlineSeconds": 30}), ("pushed", {"pushConfig": push})):
        ask(service, "PUT", f"{project}/subscriptions/{name}", {"topic": "projects/EGI/topics/readings", **said})
    ask(service, "POST", f"{project}/subscriptions/archive:modifyAcl", {"authorized_users": ["ann"]})
    for first in range(0, MESSAGES, 10):
        messages = [{"data": b64(f"{n}"), "attributes": {"n": f'"{n}"'}} for n in range(first, first + 10)]
        ask(service, "POST", f"{project}/topics/readings:publish", {"messages": messages})
    ask(service, "POST", f"{project}/topics/sited:publish", {"messages": [{"data": b64('{"site": "GR-01"}')}]})
    ask(service, "PUT", f"{project}/topics/gone")
    ask(service, "POST", f"{project}/topics/gone:publish", {"messages": [{"data": b64("gone")}] * GONE})
    ask(service, "DELETE", f"{project}/topics/gone")
    ask(service, "POST", f"{project}/subscriptions/archive:pull", {"maxMessages": "5"})
    ask(service, "POST", f"{project}/subscriptions/archive:modifyOffset", {"offset": 12})


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("old") / "ams-data"
    push = ("--push-enabled", "--push-worker-token", "the-token-of-the-push-worker")
    with live_service(folder, "--min-free-bytes", "0", "--reserve-bytes", "0", *push) as running:
        fill(running)
        yield running


@pytest.fixture
def old(service: LiveService) -> Iterator[OldApi]:
    with old_api(service.base_url) as running:
        yield running


async def read(service: LiveService, old: OldApi, **options: Any) -> tuple[Documents, Converted, list[Stored]]:
    """Read everything: documents, what becomes of them, and the messages of one topic."""
    place = Place(api=old.url, token=service.token, patience=HASTY)
    async with opened(place) as source:
        documents = await source.documents()
        found = plan(documents, source.messages).found
        first, end, *_ = source.messages.bounds(READINGS)
        batches = [batch async for batch in source.messages.batches(READINGS, first, end)]
        return documents, found, [each for batch in batches for each in batch]


def temporary(service: LiveService) -> list[str]:
    """Return what reading has left there."""
    listed = ask(service, "GET", "/projects/EGI/subscriptions")["subscriptions"]
    return [each["name"] for each in listed if "ams-migrate-" in each["name"]]


async def test_everything_that_the_api_shows_goes_over(service: LiveService, old: OldApi) -> None:
    _, found, _ = await read(service, old)

    profile = ask(service, "GET", "/users/ann")
    ann = next(each for each in found.users if each.name == "ann")
    assert (ann.id, ann.token, ann.first_name) == (profile["uuid"], profile["token"], "Ann")
    assert [(each.user, each.project, sorted(each.roles)) for each in found.memberships] == [
        ("ann", "EGI", ["consumer", "publisher"]), ("bob", "EGI", ["consumer", "publisher"]),
    ]  # fmt: skip
    assert [(each.name, each.description) for each in found.projects] == [("EGI", "sites")]
    assert [each.line.name for each in found.topics] == ["readings", "sited", "silent"]
    assert [each.line.authorized for each in found.topics] == [("bob", "ann"), (), ()]
    assert [each.line.schema for each in found.topics] == [None, "sited", None]
    assert [each.bounds for each in found.topics] == [Bounds(0, MESSAGES), Bounds(0, 1), Bounds(0, 0)]
    readings = found.topics[0].line
    assert readings.tally is not None
    assert (readings.tally.messages, sum(each.messages for each in readings.days)) == (MESSAGES, MESSAGES)
    assert sum(each.messages for each in found.projects[0].days) == MESSAGES + 1 + GONE
    archive, pushed = found.subscriptions
    assert (archive.name, archive.offset, archive.ack_deadline_seconds, archive.authorized) == (
        "archive", 12, 30, ("ann",),
    )  # fmt: skip
    config = ask(service, "GET", "/projects/EGI/subscriptions/pushed")["pushConfig"]
    assert pushed.push is not None
    assert (pushed.push.verification_hash, pushed.push.header_value, pushed.push.base64_decode) == (
        config["verificationHash"], config["authorizationHeader"]["value"], True,
    )  # fmt: skip
    assert [(each.name, each.status) for each in found.registrations] == [("eve", "pending")]
    assert found.registrations[0].activation_token
    assert found.oddities == []


async def test_messages_have_their_ids_and_nothing_of_the_reading_stays(service: LiveService, old: OldApi) -> None:
    _, _, messages = await read(service, old)

    assert [each.offset for each in messages] == list(range(MESSAGES))
    assert parse(messages[7].fragment).data == b64("7")
    assert parse(messages[7].fragment).attributes == {"n": '"7"'}
    assert temporary(service) == []
    assert ask(service, "GET", "/projects/EGI/subscriptions/archive:offsets")["current"] == 12


async def test_what_no_pull_can_pass_is_a_hole_and_all_around_it_is_read(service: LiveService, old: OldApi) -> None:
    old.unreadable = {0, 33, 34, MESSAGES - 1}

    _, _, messages = await read(service, old)

    assert [each.offset for each in messages] == sorted(set(range(MESSAGES)) - old.unreadable)
    assert len(old.pulls) < MESSAGES  # it does not go on one by one


async def test_a_service_that_fails_for_a_while_is_asked_again(service: LiveService, old: OldApi) -> None:
    old.failures = {":pull": [(503, "busy"), (500, BACKEND)], "/users": [(502, "proxy")]}

    documents, _, messages = await read(service, old)

    assert len(messages) == MESSAGES
    assert len(documents.users) >= 3


@pytest.mark.parametrize("ending", [":pull", "/users", ":modifyOffset", "/topics/sited:acl"])
async def test_one_that_fails_on_is_one_clear_line_and_nothing_is_left_there(
    service: LiveService, old: OldApi, ending: str
) -> None:
    old.failures = {ending: [(503, "busy"), (503, "...")]}

    with pytest.raises(Unavailable, match=f"the old service cannot be read: [A-Z]+ .*{ending}: busy") as failed:
        await read(service, old)

    assert service.token not in str(failed.value)
    assert len([each for each in old.asked if each.endswith(ending)]) <= 8
    assert temporary(service) == []


async def test_a_reader_that_does_not_read_to_the_end_leaves_nothing_there(service: LiveService, old: OldApi) -> None:
    async with opened(Place(api=old.url, token=service.token)) as source:
        await source.documents()
        reading = source.messages.batches(READINGS, 0, MESSAGES)
        await anext(reading)
        assert len(temporary(service)) == 1

    assert temporary(service) == []


async def test_what_a_killed_reader_left_is_not_moved_but_told(service: LiveService, old: OldApi) -> None:
    name = f"ams-migrate-{'0' * 32}"
    ask(service, "PUT", f"/projects/EGI/subscriptions/{name}", {"topic": "projects/EGI/topics/silent"})

    _, found, _ = await read(service, old)

    ask(service, "DELETE", f"/projects/EGI/subscriptions/{name}")
    assert [each.name for each in found.subscriptions] == ["archive", "pushed"]
    assert [(each.kind, each.what) for each in found.oddities] == [("subscription", f"EGI/{name}")]


async def test_a_rate_that_no_answer_can_say_leaves_the_rest(service: LiveService, old: OldApi) -> None:
    old.failures = {"/readings:metrics": [(500, "Error exporting data to JSON"), (500, "...")]}

    _, found, messages = await read(service, old)

    assert len(messages) == MESSAGES
    assert [each.kind for each in found.oddities] == ["counter", "counter"]
    assert found.topics[0].line.tally is not None
    assert found.topics[0].line.tally.messages == MESSAGES


async def test_no_message_before_the_end_is_an_error_and_not_an_empty_topic(
    service: LiveService, old: OldApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ams.migrate.pulling.EMPTY_PAUSE", 0)
    async with opened(Place(api=old.url, token=service.token, patience=HASTY)) as source:
        await source.documents()
        with pytest.raises(Unavailable, match=f"no message of topic EGI/readings after {MESSAGES}"):
            async for _ in source.messages.batches(READINGS, 0, MESSAGES + 1):
                pass


async def test_what_retention_took_while_it_was_read_is_told(service: LiveService, old: OldApi) -> None:
    async with opened(Place(api=old.url, token=service.token, patience=HASTY)) as source:
        await source.documents()
        with pytest.raises(Unavailable, match="read it anew"):
            async for _ in source.messages.batches(READINGS, MESSAGES + 5, MESSAGES + 9):
                pass


def run(*words: str, **variables: str) -> Ran:
    own = {name: value for name, value in os.environ.items() if not name.startswith("AMS_")}
    return run_ams(words, own | variables)


def test_a_move_by_the_api_alone_gives_a_service_that_is_the_same(service: LiveService, tmp_path: Path) -> None:
    known = {"AMS_MIGRATE_TOKEN": service.token}
    planned = run("migrate", "plan", "--api", service.base_url, "-o", "json", **known)
    written = run("migrate", "export", str(tmp_path / "all.jsonl"), "--api", service.base_url, **known)
    imported = run("import", str(tmp_path / "all.jsonl"), "--data", str(tmp_path / "data"))

    assert (planned.returncode, written.returncode, imported.returncode) == (0, 0, 0), written.stderr
    assert json.loads(planned.stdout)["counts"]["message"] == MESSAGES + 1
    assert "retention of Kafka is not shown" in planned.stderr
    assert service.token not in planned.stdout + planned.stderr + written.stdout + written.stderr
    copied = run("migrate", "copy", "--api", service.base_url, "--data", str(tmp_path / "copy"), **known)
    assert (copied.returncode, "unknown setting" in copied.stderr) == (0, False), copied.stderr
    (tmp_path / "data" / "admin.token").write_text(service.token)
    with live_service(tmp_path / "data", "--min-free-bytes", "0", "--reserve-bytes", "0") as moved:
        asked = {"AMS_ENDPOINT": moved.base_url, "AMS_TOKEN": service.token}
        same = run("migrate", "verify", "--api", service.base_url, "-o", "json", **known, **asked)
    assert same.returncode == 0, same.stdout + same.stderr
    assert json.loads(same.stdout)["messages"] == MESSAGES + 1


def test_a_cut_reads_by_the_api_until_all_is_copied_and_stops_the_old_service_then(
    starter: Starter, tmp_path: Path
) -> None:
    free = ("--min-free-bytes", "0", "--reserve-bytes", "0")
    with live_service(tmp_path / "old", *free) as original:
        ask(original, "POST", "/projects/EGI", {})
        for name in ("readings", "silent"):
            ask(original, "PUT", f"/projects/EGI/topics/{name}")
        ask(original, "PUT", "/projects/EGI/subscriptions/s", {"topic": "projects/EGI/topics/readings"})
        ask(original, "POST", "/projects/EGI/topics/readings:publish", {"messages": [{"data": b64("1")}] * 3})
        done = run(
            "migrate", "cut", "--api", original.base_url, "--data", str(tmp_path / "data"), "--start", starter.command,
            "--stop", f"kill {original.process.pid}", "--patience", "60",
            AMS_MIGRATE_TOKEN=original.token, AMS_TOKEN=original.token, AMS_ENDPOINT=starter.endpoint,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        original.process.wait(timeout=30)
    steps = done.stderr.partition("copying the rest")
    assert "stopping the old service" in steps[2]
    headers = {"x-api-key": original.token}
    offsets = httpx.get(
        f"{starter.endpoint}/v1/projects/EGI/subscriptions/s:offsets", headers=headers, trust_env=False
    ).json()
    assert (offsets["min"], offsets["max"], offsets["current"]) == (0, 3, 0)


def test_without_a_token_or_with_a_wrong_one_it_is_one_clear_line(service: LiveService) -> None:
    ann = ask(service, "GET", "/users/ann")["token"]
    none = run("migrate", "plan", "--api", service.base_url)
    wrong = run("migrate", "plan", "--api", service.base_url, AMS_MIGRATE_TOKEN=ann)
    nowhere = run("migrate", "plan")

    assert (none.returncode, wrong.returncode, nowhere.returncode) == (2, 1, 2)
    assert "set AMS_MIGRATE_TOKEN" in none.stderr
    assert "must be a service_admin's" in wrong.stderr
    assert ann not in wrong.stderr
    assert "--mongodb and --kafka, or --api" in nowhere.stderr
