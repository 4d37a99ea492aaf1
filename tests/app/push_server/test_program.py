"""`ams push` as a program beside a real service: delivering by leases, by profile, and an orderly end."""

import asyncio
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.app.push_server.condition import OK, Condition
from ams.app.push_server.following import Follower
from ams.app.push_server.upstream import HttpUpstream, Polling, Waking
from ams.client import AsyncClient, Client, Message, wire
from ams.core.supervisor import Supervisor
from tests.app.push_server.keepers import Table
from tests.app.push_server.test_following import until
from tests.support.receiving import Receiving, received
from tests.support.served import WORKER_TOKEN, Served, served

PUSH = {
    "push_enabled": True, "push_worker_token": WORKER_TOKEN, "push_allow": "127.0.0.0/8",
    "push_server_host": "127.0.0.1", "push_server_port": 1, "push_tls_enabled": False,
}  # fmt: skip
"""Of a service that delivers nothing itself; nobody is at that port."""


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    with received(tmp_path_factory.mktemp("receiver")) as running:
        yield running


def deliver_to(receiver: Receiving, service: Served, subscription: str) -> None:
    """Make a subscription that is delivered to the receiver."""
    with Client(service.run.base_url, service.token) as admin:
        push = wire.PushConfig(type="http_endpoint", push_endpoint=receiver.url(f"/ok/{subscription}"))
        made = admin.call(wire.create_subscription("P", subscription, "T", push=push))
        receiver.show(made.push_config["verificationHash"])
        admin.call(wire.verify_push_endpoint("P", subscription))


def publish(service: Served, *payloads: bytes) -> None:
    with Client(service.run.base_url, service.token) as admin:
        admin.project("P").topic("T").publish([Message(payload) for payload in payloads])


def test_messages_arrive_and_a_stop_ends_well(receiver: Receiving, tmp_path: Path) -> None:
    with served(tmp_path / "ams-data", push_ca_file=receiver.ca, **PUSH) as service:
        with Client(service.run.base_url, service.token) as admin:
            admin.call(wire.create_project("P"))
            admin.call(wire.create_topic("P", "T"))
        deliver_to(receiver, service, "S")
        service.clock.advance(10_000)  # leases of an earlier life have ended
        command = [
            sys.executable, "-m", "ams.cli.main", "push", "--endpoint", service.run.base_url, "--token", WORKER_TOKEN,
            "--no-tls-enabled", "--port", "0", "--ops-port", "0", "--push-allow", "127.0.0.0/8",
            "--push-ca-file", receiver.ca, "--log-level", "debug",
        ]  # fmt: skip
        with (tmp_path / "stderr").open("w") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready 127.0.0.1:")
            publish(service, b"one", b"two")
            found = receiver.wait(2, "/ok/S")
            assert [json.loads(each.body)["message"]["messageId"] for each in found] == ["0", "1"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(15) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    assert WORKER_TOKEN not in (tmp_path / "stderr").read_text()
    assert "b25l" not in (tmp_path / "stderr").read_text()


async def test_a_service_that_forbids_leases_is_followed_by_profile(receiver: Receiving, tmp_path: Path) -> None:
    roles = tmp_path / "roles.json"
    roles.write_text('{"push:lease": ["service_admin"], "push:wait": ["service_admin"]}')
    with served(tmp_path / "ams-data", push_ca_file=receiver.ca, roles_file=str(roles), **PUSH) as service:
        with Client(service.run.base_url, service.token) as admin:
            admin.call(wire.create_project("P"))
            admin.call(wire.create_topic("P", "T"))
        deliver_to(receiver, service, "S")
        table, condition = Table(), Condition()
        async with AsyncClient(service.run.base_url, WORKER_TOKEN, retry=None) as client:
            follower = Follower(client, table, condition, random=random.Random(1))
            await follower.start(Supervisor())
            await until(lambda: bool(table.targets))
            [target] = table.targets.values()
            waiting = Waking(client, Polling(random.Random(1)), seconds=1)
            upstream = HttpUpstream(client, waiting)
            await asyncio.to_thread(publish, service, b"one")
            async with asyncio.timeout(10):
                while not (messages := await upstream.pull(target, max_messages=5, max_bytes=10**6)):
                    pass
            await upstream.acknowledge(target, messages[-1])
            assert await upstream.pull(target, max_messages=5, max_bytes=10**6) == []
            await follower.stop(1)
            await waiting.close()

    assert (target.path, condition.text) == ("/projects/P/subscriptions/S", OK)
    assert target.config.endpoint == receiver.url("/ok/S")
