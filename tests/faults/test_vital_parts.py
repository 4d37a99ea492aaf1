"""Every vital part of a service is killed while it runs; background rounds survive one that fails."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn

import httpx
import pytest
from structlog.testing import capture_logs

from ams.app import lifecycle
from ams.app.lifecycle import RunningService
from ams.core.errors import OUTCOME_UNKNOWN, LogUnavailable
from ams.http import tls
from ams.http.tls import Certificate
from ams.push.lease_holder import Holding
from ams.service import retention, subscriptions, tallies, users
from ams.storage.audit import trail
from ams.storage.audit.records import AuditRecords
from ams.storage.cursors.embedded import EmbeddedCursors
from ams.storage.log.embedded.committer import Committer
from ams.storage.log.embedded.state import LogState
from ams.storage.log.embedded.upkeep import Upkeep
from ams.storage.registry.logins import NamedTokenRecords
from ams.storage.registry.snapshots import SnapshotRecords
from tests.support import planted
from tests.support.service import LiveService, live_service, make_subscription, running_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

pytestmark = pytest.mark.embedded("the threads and files are those of the embedded engines")

SECONDS = 100
TOPIC, SUB = "/projects/P/topics/T", "/projects/P/subscriptions/S"
PUBLISH, PULL, ACKNOWLEDGE = f"{TOPIC}:publish", f"{SUB}:pull", f"{SUB}:acknowledge"
PUSH = {"push_enabled": True, "push_worker_token": "w" * 32}
MESSAGE, ACK = {"messages": [{"data": "aGk="}]}, {"ackIds": ["projects/P/subscriptions/S:0"]}


class Planted(BaseException):
    """An unexpected failure: not even an `Exception`."""


class Defect(Exception):
    """An exception from a programming error."""


def raise_planted(*_: object, **__: object) -> NoReturn:
    raise Planted


def raise_defect(*_: object, **__: object) -> NoReturn:
    raise Defect


Http = httpx.AsyncClient


async def publish(http: Http) -> httpx.Response:
    return await http.post(PUBLISH, json=MESSAGE)


async def acknowledge(http: Http) -> httpx.Response:
    return await http.post(ACKNOWLEDGE, json=ACK)


class VitalPart(NamedTuple):
    """A part, how it is killed, and the requests that then wait for it."""

    owner: type
    function: str
    fault: Callable[..., NoReturn]
    reason: str
    asked: Callable[[Http], Awaitable[httpx.Response]]


PARTS = {
    "taking a group to store": VitalPart(
        Committer, "_take", raise_defect, "writing of the log failed (Defect)", publish
    ),
    "storing a group": VitalPart(
        Committer, "_commit_class", raise_planted, "writing of the log failed (Planted)", publish
    ),
    "telling of a group": VitalPart(
        Committer, "_succeed_failed", raise_defect, "writing of the log failed (Defect)", publish
    ),
    "what is in memory of the log": VitalPart(
        LogState, "_place", raise_defect, "memory of the log failed (Defect)", publish
    ),
    "storing cursors": VitalPart(
        Committer, "_commit_cursors", raise_planted, "writing of the log failed (Planted)", acknowledge
    ),
    "cursors in memory": VitalPart(
        EmbeddedCursors, "_settle_group", raise_defect, "memory of the cursors failed (Defect)", acknowledge
    ),
}


@asynccontextmanager
async def serving_with(folder: Path) -> AsyncIterator[tuple[RunningService, Http]]:
    """Serve with a topic, a subscription, and one leased message."""
    async with running_service(folder / "data") as (run, token), client_of(run, token) as http:
        await http.post("/projects/P", json={})
        await http.put(TOPIC)
        await http.put(SUB, json={"topic": "projects/P/topics/T"})
        (await publish(http)).raise_for_status()
        (await http.post(PULL, json={"maxMessages": "1"})).raise_for_status()
        yield run, http


def client_of(run: RunningService, token: str) -> Http:
    return Http(base_url=f"{run.base_url}/v1", headers={"x-api-key": token}, trust_env=False, timeout=SECONDS)


async def get_readiness(run: RunningService) -> tuple[int, str]:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as http:
        answer = await http.get(run.operations_url + "/readyz")
    return answer.status_code, answer.text.strip()


async def find_unready(run: RunningService) -> tuple[int, str] | None:
    return found if (found := await get_readiness(run))[0] != 200 else None


@pytest.fixture(autouse=True)
def ends_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lifecycle, "FAILED_SECONDS", 0)
    with capture_logs():  # tracebacks take long to be written
        yield


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
async def test_readiness_names_the_dead_part(part: VitalPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(SECONDS):
        with capture_logs() as lines:
            async with serving_with(tmp_path) as (run, http):
                monkeypatch.setattr(part.owner, part.function, part.fault)
                answers = await asyncio.gather(*(part.asked(http) for _ in range(3)))
                after = await part.asked(http)
                ready = await get_readiness(run)
                monkeypatch.undo()

    for answer in [*answers, after]:
        assert (answer.status_code, answer.json()["error"]["status"]) == (500, "INTERNAL_SERVER_ERROR")
        assert answer.json()["error"]["message"].startswith(("Backend Error", OUTCOME_UNKNOWN))
        assert answer.headers["retry-after"] == "2"
    assert ready == (503, part.reason)
    assert [each["part"] for each in lines if each["event"] == "part.failed"] == [part.reason.split(" failed")[0]]


async def test_a_publish_lost_in_memory_returns_at_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(SECONDS):
        async with serving_with(tmp_path) as (_, http):
            place = LogState._place
            monkeypatch.setattr(LogState, "_place", raise_defect)
            lost = await publish(http)
            monkeypatch.setattr(LogState, "_place", place)  # as if it happened once
            later = await publish(http)
            pulled = await http.post(PULL, json={"maxMessages": "10", "returnImmediately": "true"})
        async with running_service(tmp_path / "data") as (run, token), client_of(run, token) as http:
            again = await http.post(PULL, json={"maxMessages": "10", "returnImmediately": "true"})

    assert (lost.status_code, later.status_code, pulled.status_code) == (500, 500, 500)
    assert "not known" in lost.json()["error"]["message"]
    assert [each["message"]["messageId"] for each in again.json()["receivedMessages"]] == ["0", "1"]


async def test_a_dead_log_ends_open_pulls_and_refuses_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(SECONDS), serving_with(tmp_path) as (run, http):
        (await acknowledge(http)).raise_for_status()
        waiting = asyncio.create_task(http.post(PULL, json={"maxMessages": "1"}))
        await wait_until_async(lambda: run.service.deliverer.waiting)
        monkeypatch.setattr(Committer, "_take", raise_defect)
        await publish(http)
        assert (await waiting).status_code == 500
        assert run.service.embedded is not None
        async with run.service.embedded.upkeep.keep_files() as parts:
            with pytest.raises(LogUnavailable):
                await parts()


async def test_a_holder_of_push_leases_does_not_end_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(SECONDS), running_service(tmp_path / "data", **PUSH) as (run, _):
        monkeypatch.setattr(Holding, "_round", raise_defect)
        monkeypatch.setattr(Holding, "_note_no_answer", raise_defect)
        said = await wait_until_async(lambda: find_unready(run))
        monkeypatch.undo()

    assert said == (503, "push leases failed (Defect)")


@contextmanager
def planted_service(folder: Path, fault: str) -> Iterator[tuple[LiveService, httpx.Client, Path]]:
    """Run a service as its own process with a fault in it, triggered when the returned file exists."""
    data, trigger = folder / "data", folder / "now"
    environment = {planted.FAULT: fault, planted.TRIGGER: str(trigger)}
    flags = ("--log-format", "json", "--min-free-bytes", "0", "--reserve-bytes", "0")
    with (
        live_service(data, *flags, environment=environment, program=planted.__name__) as service,
        service.http() as http,
    ):
        make_subscription(http)
        yield service, http, trigger


@pytest.mark.parametrize("fault", ["log", pytest.param("cursors", marks=pytest.mark.long)])
def test_a_service_whose_part_died_ends_so_that_it_is_started_again(fault: str, tmp_path: Path) -> None:
    with planted_service(tmp_path, fault) as (service, http, trigger):
        http.post(PUBLISH, json=MESSAGE)
        http.post(PULL, json={"maxMessages": "1"})
        trigger.touch()
        answer = http.post(PUBLISH, json=MESSAGE) if fault == "log" else http.post(ACKNOWLEDGE, json=ACK)
        code = service.process.wait(timeout=SECONDS)

    assert answer.status_code == 500
    assert code == 70
    lines = (tmp_path / "data.stderr").read_text().splitlines()
    (said,) = [json.loads(line) for line in lines if '"part.failed"' in line]
    assert said["level"] == "critical"
    assert "Traceback" in said["exception"]
    assert "Planted" in said["exception"]


@pytest.mark.long
def test_sigterm_ends_a_service_of_which_something_hangs(tmp_path: Path) -> None:
    with planted_service(tmp_path, "hanging") as (service, _, _):
        service.process.send_signal(signal.SIGTERM)
        code = service.process.wait(timeout=SECONDS)

    assert code == 70
    assert "stop.forced" in (tmp_path / "data.stderr").read_text()


WORKS: dict[str, tuple[type, str]] = {
    "counting": (tallies.Counts, "take"), "counting of losses": (EmbeddedCursors, "lost_in_all"),
    "uses of tokens": (NamedTokenRecords, "note_uses"), "audit table": (trail.Trail, "bring_in"),
    "pruning of the audit table": (AuditRecords, "prune"), "repeated refusals": (trail.Trail, "flush"),
    "upkeep of the log": (Upkeep, "_chore"), "what expires": (SnapshotRecords, "delete_expired"),
    "push leases": (Holding, "_round"), "certificate": (Certificate, "reload"),
}  # fmt: skip
"""Background works, and the function that each round calls."""
PAUSES = [
    (tallies, "ROUND_SECONDS"), (tallies, "MAX_PAUSE_SECONDS"), (retention, "LOOK_SECONDS"), (tls, "CHECK_SECONDS"),
    (users, "STORE_USES_SECONDS"), (subscriptions, "EXPIRY_SECONDS"), (trail, "BATCH_SECONDS"),
    (trail, "PRUNE_SECONDS"),
]  # fmt: skip
SURVIVED_WORK = re.compile(r'^ams_background_failures_total\{work="(.*)"\} (?!0)', re.MULTILINE)


async def test_a_failed_round_is_counted_and_the_next_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in PAUSES:
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(trail, "MINUTE", 10)
    async with (
        asyncio.timeout(SECONDS),
        running_service(tmp_path / "data", tls_self_signed=True, audit_days=1, **PUSH) as (run, token),
        httpx.AsyncClient(verify=False, trust_env=False, timeout=PATIENCE_SECONDS) as http,
    ):
        with monkeypatch.context() as planted:
            for owner, name in WORKS.values():
                planted.setattr(owner, name, raise_defect)
            wake(run)
            await http.post(run.base_url + "/v1/projects/P", json={}, headers={"x-api-key": token})
            while not {*SURVIVED_WORK.findall((await http.get(f"{run.operations_url}/metrics")).text)} >= WORKS.keys():
                await asyncio.sleep(0.01)
        rounds = [asyncio.create_task(wait_for_call(monkeypatch, *work)) for work in WORKS.values()]
        await asyncio.sleep(0)
        wake(run)
        await http.post(run.base_url + "/v1/projects/Q", json={}, headers={"x-api-key": token})
        await asyncio.gather(*rounds)
        assert await get_readiness(run) == (200, "ok")


def wake(run: RunningService) -> None:
    assert run.service.embedded is not None
    assert run.service.push.runner is not None
    run.service.embedded.upkeep.rounds.soon()
    run.service.push.runner._holding.wake()


async def wait_for_call(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Return when the next round of this work has begun."""
    begun, whole = asyncio.Event(), getattr(owner, name)

    def round_(*given: object, **named: object) -> object:
        begun.set()
        return whole(*given, **named)

    monkeypatch.setattr(owner, name, round_)
    await begun.wait()
