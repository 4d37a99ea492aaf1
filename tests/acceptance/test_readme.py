import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.cloud import pubsub_v1
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

from tests.support.documents import ROOT, environment, follow, make_clone, run, run_examples

pytestmark = [pytest.mark.acceptance, pytest.mark.curl]

LAST_LINE_SHOWN = "ams --help"
NO_JAVA = environment(JAVA_HOME="/nowhere")
"""Without the job on Spark at the end."""


class Clone:
    """A folder where `make run` was typed in another terminal."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]") -> None:
        self.folder = folder
        self.process = process
        assert process.stdout is not None
        self.shown: list[str] = []
        for line in process.stdout:
            self.shown.append(line)
            if LAST_LINE_SHOWN in line:
                return
        raise AssertionError("".join(self.shown))

    @property
    def endpoint(self) -> str:
        return self.shown[0].split("ready at ")[1].split(",")[0]


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    make_clone(tmp_path)
    command = [sys.executable, "-m", "demo", "--keep-serving", "--port", "0", "--messages", "600"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=NO_JAVA, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield Clone(tmp_path, process)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def test_the_commands_of_the_readme_and_of_make_run_work_beside_it_and_ctrl_c_ends_it_in_order(clone: Clone) -> None:
    follow(ROOT / "README.md", clone.folder, clone.endpoint)
    run_examples(ROOT / "README.md", clone.folder, clone.endpoint)

    to_try = [line for line in clone.shown if line.startswith(("  curl", "  .venv", "  export"))]
    tried = run("".join(to_try), clone.folder)
    assert tried.returncode == 0, tried.stdout
    assert '"messageIds"' in tried.stdout
    assert '"receivedMessages":[{' in tried.stdout

    [shown] = [line for line in clone.shown if "PUBSUB_EMULATOR_HOST=" in line]
    with grpc.insecure_channel(shown.strip().partition("=")[2]) as channel:
        publisher = pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        assert "projects/demo/topics/metric_data" in [
            each.name for each in publisher.list_topics(project="projects/demo")
        ]

    clone.process.send_signal(signal.SIGINT)
    ending, _ = clone.process.communicate(timeout=60)
    assert clone.process.returncode == 0
    assert "Stopped; the data stay in ams-data." in ending
    assert ending.splitlines()[-1].startswith("demo: published 600 received 600 acknowledged 600 lost 0 duplicated 0")
    assert "Traceback" not in ending


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 140
