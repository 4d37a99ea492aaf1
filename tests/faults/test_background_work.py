"""Every work that comes in rounds survives a round that fails, and tells it."""

import asyncio
import re
from pathlib import Path
from typing import NamedTuple, NoReturn

import httpx
import pytest
from structlog.testing import capture_logs

from ams.app.serving import Running
from ams.http import tls
from ams.http.tls import Certificate
from ams.push.holding import Holding
from ams.service import counting, expiring, retention, tokens
from ams.storage.audit import logins, trail
from ams.storage.audit.records import AuditRecords
from ams.storage.log.embedded.upkeep import Upkeep
from ams.storage.registry.logins import NamedTokenRecords
from ams.storage.registry.parallel import SnapshotRecords
from tests.support.service import running_service


class Work(NamedTuple):
    name: str
    owner: type
    round: str


WORKS = [
    Work("counting", counting.Counts, "take_published"),
    Work("counting of losses", retention.LossTotal, "_oldest"),
    Work("uses of tokens", NamedTokenRecords, "note_uses"),
    Work("audit table", trail.FileTrail, "bring_in"),
    Work("pruning of the audit table", AuditRecords, "prune"),
    Work("failed logins", logins.FailedLogins, "flush"),
    Work("upkeep of the log", Upkeep, "_chore"),
    Work("what expires", SnapshotRecords, "delete_expired"),
    Work("push leases", Holding, "_round"),
    Work("certificate", Certificate, "reload"),
]
PAUSES = [
    (counting, "ROUND_SECONDS"), (counting, "MAX_PAUSE_SECONDS"), (retention, "LOOK_SECONDS"), (tls, "CHECK_SECONDS"),
    (tokens, "ROUND_SECONDS"), (expiring, "ROUND_SECONDS"), (trail, "BATCH_SECONDS"), (trail, "PRUNE_SECONDS"),
]  # fmt: skip
SURVIVED = re.compile(r'^ams_background_failures_total\{work="(.*)"\} (?!0)', re.MULTILINE)


def breaks(*_: object, **__: object) -> NoReturn:
    raise KeyError("planted")


@pytest.mark.embedded("the upkeep is that of the embedded log")
async def test_a_round_that_fails_is_counted_and_the_next_one_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in PAUSES:
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(logins, "MINUTE", 10)
    with capture_logs():  # many tracebacks, which take long to be written
        await _all_survive(tmp_path, monkeypatch)


async def _all_survive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push = {"push_enabled": True, "push_worker_token": "w" * 32}
    async with (
        asyncio.timeout(60),
        running_service(folder / "data", tls_self_signed=True, audit_days=1, **push) as (run, token),
        httpx.AsyncClient(verify=False, trust_env=False) as http,
    ):
        with monkeypatch.context() as planted:
            for work in WORKS:
                planted.setattr(work.owner, work.round, breaks)
            wake(run)
            await http.post(run.base_url + "/v1/projects/P", json={}, headers={"x-api-key": token})
            while {work.name for work in WORKS} - await survived(http, run):
                await asyncio.sleep(0.01)
        rounds = [asyncio.create_task(called(monkeypatch, work)) for work in WORKS]
        await asyncio.sleep(0)
        wake(run)
        await http.post(run.base_url + "/v1/projects/Q", json={}, headers={"x-api-key": token})
        await asyncio.gather(*rounds)
        ready = await http.get(run.operations_url + "/readyz")

    assert (ready.status_code, ready.text) == (200, "ok\n")


def wake(run: Running) -> None:
    assert run.service.embedded is not None
    assert run.service.push.runner is not None
    run.service.embedded._upkeep.rounds.soon()
    run.service.push.runner._holding.wake()


async def called(monkeypatch: pytest.MonkeyPatch, work: Work) -> None:
    """Return when the next round of this work has begun."""
    begun, whole = asyncio.Event(), getattr(work.owner, work.round)

    def round_(*given: object, **named: object) -> object:
        begun.set()
        return whole(*given, **named)

    monkeypatch.setattr(work.owner, work.round, round_)
    await begun.wait()


async def survived(http: httpx.AsyncClient, run: Running) -> set[str]:
    """Return which works say that a round of theirs failed."""
    return set(SURVIVED.findall((await http.get(run.operations_url + "/metrics")).text))
