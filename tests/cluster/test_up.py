"""`make cluster` as a user runs it to try it out, here with TLS and passwords between all parts."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from ams.client import Client, Message
from ams.client.wire import create_project
from local_cluster.processes import descendants, runs
from tests.support.documents import environment
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.haproxy, pytest.mark.long]

ROOT = Path(__file__).parents[2]
PARTS = {"haproxy", *(f"{part}{number}" for part in ("broker ", "postgres ", "node") for number in (1, 2, 3))}
ROW = re.compile(r"^(\w+(?: \d)?) +127\.0\.0\.1:\d+ +(\d+) +/", re.MULTILINE)
EXPORT = re.compile(r"AMS_ENDPOINT=(\S+) AMS_CA=(\S+) AMS_TOKEN_FILE=(\S+)")


class UpCommand:
    def __init__(self, folder: Path) -> None:
        self.output = folder / "output"
        with self.output.open("w") as output:
            command = [sys.executable, "-m", "local_cluster", "up", "--secure"]
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=output, stderr=output)

    @property
    def text(self) -> str:
        return self.output.read_text()

    def wait_for(self, *words: str) -> None:
        wait_until(lambda: all(each in self.text for each in words), 300, process=self.process)


@pytest.fixture
def up_command(tmp_path: Path) -> Iterator[UpCommand]:
    up = UpCommand(tmp_path)
    try:
        up.wait_for("Ctrl-C stops everything")
        yield up
    finally:
        up.process.kill()
        up.process.wait()


def test_messages_go_through_what_is_killed_is_brought_back_and_ctrl_c_leaves_nothing(up_command: UpCommand) -> None:
    pids = {name: int(pid) for name, pid in ROW.findall(up_command.text)}
    assert pids.keys() == PARTS
    [(endpoint, ca, token_file)] = set(EXPORT.findall(up_command.text))
    with Client(endpoint, Path(token_file).read_text().strip(), ca=ca) as client:
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
    up_command.wait_for("node1 is back", "postgres 1 is back")
    assert "takes writes now" in up_command.text

    everything = descendants(up_command.process.pid)
    up_command.process.send_signal(signal.SIGINT)
    assert up_command.process.wait(60) == 0, up_command.text
    assert [pid for pid in everything if runs(pid)] == []
