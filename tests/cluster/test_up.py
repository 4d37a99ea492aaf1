"""`make cluster` as somebody uses it who wants to see it, here with TLS and passwords between all parts."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import grpc
import pytest
from google.cloud.pubsub_v1 import PublisherClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

from ams.client import Client, Message
from ams.client.wire import create_project
from cluster.processes import descendants, runs
from tests.support.documents import environment

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.haproxy]

ROOT = Path(__file__).parents[2]
SECONDS = 60
PARTS = {
    "broker 1",
    "broker 2",
    "broker 3",
    "postgres 1",
    "postgres 2",
    "postgres 3",
    "node1",
    "node2",
    "node3",
    "haproxy",
}
ROW = re.compile(r"^(\w+(?: \d)?) +127\.0\.0\.1:\d+ +(\d+) +/", re.MULTILINE)
EXPORT = re.compile(r"AMS_ENDPOINT=(\S+) AMS_CA=(\S+) AMS_TOKEN_FILE=(\S+)")


class Up:
    """A cluster somebody started in a terminal."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "output"
        with self.output.open("w") as output:
            command = [sys.executable, "-m", "cluster", "up", "--secure"]
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=output, stderr=output)

    @property
    def text(self) -> str:
        return self.output.read_text()

    def eventually(self, true: Callable[[], object], seconds: float = 240) -> None:
        give_up = time.monotonic() + seconds
        while not true():
            assert self.process.poll() is None, self.text
            assert time.monotonic() < give_up, self.text
            time.sleep(0.05)

    @property
    def pids(self) -> dict[str, int]:
        return {name: int(pid) for name, pid in ROW.findall(self.text)}

    def client(self) -> Client:
        found = EXPORT.search(self.text)
        assert found is not None
        return Client(found[1], Path(found[3]).read_text().strip(), ca=found[2])


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(tmp_path_factory.mktemp("up"))
    try:
        up.eventually(lambda: "Ctrl-C stops everything" in up.text)
        yield up
    finally:
        up.process.kill()
        up.process.wait()


@pytest.mark.long
def test_googles_clients_publish_where_it_says_that_they_can(up: Up) -> None:
    said = re.search(r"^For Google's clients, by TLS and with the same token: (\S+)$", up.text, re.MULTILINE)
    exported = EXPORT.search(up.text)
    assert said is not None
    assert exported is not None
    with up.client() as client:
        client.call(create_project("google"))
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(Path(exported[2]).read_bytes()),
        grpc.access_token_call_credentials(Path(exported[3]).read_text().strip()),
    )
    with grpc.secure_channel(said[1], credentials) as channel:
        publisher = PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        publisher.create_topic(request={"name": "projects/google/topics/topic"})
        assert publisher.publish("projects/google/topics/topic", b"x").result(SECONDS) == "0"


@pytest.mark.long
def test_messages_go_through_what_is_killed_is_brought_back_and_ctrl_c_leaves_nothing(up: Up) -> None:
    pids = up.pids
    assert pids.keys() == PARTS
    with up.client() as client:
        client.call(create_project("P"))
        topic, subscription = client.project("P").topic("t"), client.project("P").subscription("s")
        topic.create()
        subscription.create("t")
        for name in ("node1", "postgres 1"):
            os.kill(pids[name], signal.SIGKILL)
        ids = [topic.publish([Message(str(number).encode())])[0] for number in range(20)]
        messages = list(islice(subscription.messages(batch=5), 20))

    assert [message.id for message in messages] == ids == [str(number) for number in range(20)]
    assert [message.data for message in messages] == [str(number).encode() for number in range(20)]
    up.eventually(lambda: "node1 is back" in up.text and "postgres 1 is back" in up.text)
    assert "takes writes now" in up.text

    everything = descendants(up.process.pid)
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(60) == 0, up.text
    assert [pid for pid in everything if runs(pid)] == []
