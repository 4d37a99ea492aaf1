"""Leases and push status over HTTP, for a delivering process and for people who watch it."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ams.client import Client, wire
from ams.cluster.leases import LEASE_SECONDS
from ams.push.report import RETRYING, SEND
from ams.wire.push import Attempt, Failure, WorkerState
from tests.support import shape
from tests.support.administration import age_leases
from tests.support.served import SERVICE_TOKEN, WORKER_TOKEN, InProcessService, in_process_service

PUSH = {"push_enabled": True, "push_worker_token": WORKER_TOKEN, "push_inside": False}
"""A service that delivers nothing itself."""
HOOK = "https://chat.example/hooks/x"
A_HOOK = wire.PushConfig(type="mattermost", mattermost_url=HOOK)
FAILURE = Failure(time=1_709_634_030_007, what=SEND, detail="come back later", status=503)
ATTEMPT = Attempt(time=1_709_634_029_950, messages=1, status=503, milliseconds=57, bytes=212, error="no")
BROKEN = WorkerState(
    phase=RETRYING, failure=FAILURE, last_failure=FAILURE, last_success=1_709_634_000_000,
    next_attempt=1_709_634_033_310, batch=4, delivered=9, failed=1, attempts=[ATTEMPT],
)  # fmt: skip


@dataclass(frozen=True)
class PushService:
    service: InProcessService
    admin: Client
    worker: Client
    id: str

    def heartbeat(self, holder: str = "h", *held: str, **more: object) -> wire.PushLease:
        return self.worker.call(wire.lease_push(holder, held, **more))  # type: ignore[arg-type]

    def end_leases(self) -> None:
        """Expire all leases: the database's clock cannot be moved, so their start is moved back."""
        self.service.clock.advance(round(LEASE_SECONDS * 1000))
        if shape.is_cluster():
            self.service.carry_out(age_leases(self.service.run.service.registry, 60_000))

    def status(self, of: Client | None = None) -> wire.PushStatus:
        return (of or self.admin).call(wire.get_push_status("P", "S"))


@pytest.fixture(scope="module")
def push_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PushService]:
    with (
        in_process_service(tmp_path_factory.mktemp("service") / "ams-data", **PUSH) as service,
        Client(service.run.base_url, service.token) as admin, Client(service.run.base_url, WORKER_TOKEN) as worker,
    ):  # fmt: skip
        admin.call(wire.create_project("P"))
        admin.call(wire.create_topic("P", "T"))
        admin.call(wire.create_subscription("P", "S", "T", ack_deadline=20, push=A_HOOK))
        service.clock.advance(round(LEASE_SECONDS * 1000))
        told = worker.call(wire.lease_push("first", []))
        assert told.targets
        worker.call(wire.lease_push("first", [], leaving=True))
        yield PushService(service, admin, worker, told.targets[0].id)


@pytest.fixture(autouse=True)
def end_push_leases(push_service: PushService) -> None:
    push_service.end_leases()


def test_one_process_is_told_all_it_needs_to_deliver_until_that_is_over(push_service: PushService) -> None:
    lease = push_service.heartbeat()

    assert (lease.lease_seconds, lease.beat_seconds) == (6, 2)
    assert lease.targets is not None
    [target] = lease.targets
    assert (target.name, target.topic) == ("/projects/P/subscriptions/S", "/projects/P/topics/T")
    assert len(target.topic_id) == 36
    assert (target.ack_deadline_seconds, target.secrets) == (20, [])
    assert (target.push_config["mattermostUrl"], target.push_config["verified"]) == (HOOK, True)

    with Client(push_service.service.run.base_url, SERVICE_TOKEN) as other:  # of the same name, but not the same user
        assert other.call(wire.lease_push("h", [])).targets == []
    push_service.admin.call(wire.modify_push_config("P", "S", None))
    assert push_service.heartbeat("h", push_service.id).targets == []
    push_service.admin.call(wire.modify_push_config("P", "S", A_HOOK))


def test_the_status_tells_what_the_process_told(push_service: PushService) -> None:
    push_service.heartbeat()
    push_service.heartbeat("h", push_service.id, states={push_service.id: BROKEN})
    push_service.admin.call(wire.publish("P", "T", [wire.message(b"one"), wire.message(b"two")]))

    status = push_service.status()

    assert status.push_status == "2024-03-05T10:20:30 - Could not send message, come back later"
    assert (status.state, status.backlog, status.circuit, status.batch) == ("retrying", 2, "closed", 4)
    error = wire.PushError(time="2024-03-05T10:20:30.007Z", what="send", detail="come back later", status=503)
    assert status.error == status.last_error == error
    assert (status.last_success, status.next_attempt) == ("2024-03-05T10:20:00.000Z", "2024-03-05T10:20:33.310Z")
    assert (status.delivered, status.failed, status.dead) == (9, 1, 0)
    said = {"messages": 1, "status": 503, "milliseconds": 57, "bytes": 212, "error": "no"}
    assert status.attempts == [wire.PushAttempt(time="2024-03-05T10:20:29.950Z", **said)]


def test_who_only_consumes_is_not_told_what_the_endpoint_said(push_service: PushService) -> None:
    made = push_service.admin.call(wire.create_member("P", "con", ["consumer"]))
    push_service.admin.call(wire.modify_subscription_acl("P", "S", ["con"]))
    push_service.heartbeat()
    push_service.heartbeat("h", push_service.id, states={push_service.id: BROKEN})

    with Client(push_service.service.run.base_url, made.token) as consumer:
        status = push_service.status(consumer)

    assert status.push_status == "2024-03-05T10:20:30 - Could not send message, "
    assert status.error == wire.PushError(time="2024-03-05T10:20:30.007Z", what="send", status=503)
    assert [each.error for each in status.attempts] == ["HTTP 503"]
    assert status.state == "retrying"


def test_nobody_delivers_or_nobody_tells_or_who_says_that_all_is_well_is_believed(push_service: PushService) -> None:
    assert push_service.status().state == "inactive"
    push_service.heartbeat()
    assert push_service.status().state == "unknown"
    push_service.heartbeat("h", push_service.id, states={push_service.id: WorkerState(delivered=3)})

    status = push_service.status()

    assert status.push_status == "Subscription /projects/P/subscriptions/S is currently active"
    assert (status.state, status.error, status.attempts) == ("active", None, [])
