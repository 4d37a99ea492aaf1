"""`ams push` as a program beside a real service: delivering by leases, by profile, and an orderly end."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from ams.client import Client, Message, wire
from tests.support.receiving import Receiving
from tests.support.served import WORKER_TOKEN, Served, served
from tests.support.waiting import PATIENCE_SECONDS

PUSH = {
    "push_enabled": True, "push_worker_token": WORKER_TOKEN, "push_allow": "127.0.0.0/8",
    "push_server_host": "127.0.0.1", "push_server_port": 1, "push_tls_enabled": False,
}  # fmt: skip
"""Of a service that delivers nothing itself; nobody is at that port."""


def deliver_to(receiving: Receiving, service: Served, subscription: str) -> None:
    """Make a subscription that is delivered to the receiving."""
    with Client(service.run.base_url, service.token) as admin:
        push = wire.PushConfig(type="http_endpoint", push_endpoint=receiving.url(f"/ok/{subscription}"))
        made = admin.call(wire.create_subscription("P", subscription, "T", push=push))
        receiving.show(made.push_config["verificationHash"])
        admin.call(wire.verify_push_endpoint("P", subscription))


def publish(service: Served, *payloads: bytes) -> None:
    with Client(service.run.base_url, service.token) as admin:
        admin.project("P").topic("T").publish([Message(payload) for payload in payloads])


def test_messages_arrive_and_a_stop_ends_well(receiving: Receiving, tmp_path: Path) -> None:
    with served(tmp_path / "ams-data", push_ca_file=receiving.ca, **PUSH) as service:
        with Client(service.run.base_url, service.token) as admin:
            admin.call(wire.create_project("P"))
            admin.call(wire.create_topic("P", "T"))
        deliver_to(receiving, service, "S")
        service.clock.advance(10_000)  # leases of an earlier life have ended
        command = [
            sys.executable, "-m", "ams.cli.main", "push", "--endpoint", service.run.base_url, "--token", WORKER_TOKEN,
            "--no-tls-enabled", "--port", "0", "--ops-port", "0", "--push-allow", "127.0.0.0/8",
            "--push-ca-file", receiving.ca, "--log-level", "debug",
        ]  # fmt: skip
        with (tmp_path / "stderr").open("w") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready 127.0.0.1:")
            publish(service, b"one", b"two")
            found = receiving.wait(2, "/ok/S")
            assert [json.loads(each.body)["message"]["messageId"] for each in found] == ["0", "1"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    assert WORKER_TOKEN not in (tmp_path / "stderr").read_text()
    assert "b25l" not in (tmp_path / "stderr").read_text()
