"""Google's own clients, and Celery on top of them, run as in their guide against the real service."""

import asyncio
import re
import shlex
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient

from ams.pubsub.streaming_pull import Streams
from tests.acceptance.clients.google import HERE, LANGUAGES, PYTHON, Language
from tests.support.documents import ROOT, block, environment, is_shown, make_clone, run_script, write_programs
from tests.support.service import LiveService, live_service, running_service

pytestmark = pytest.mark.acceptance

EMULATOR = "localhost:8085"
GUIDE = ROOT / "docs" / "how-to" / "google-clients.md"
SECONDS = 300  # until a program has surely failed; the first time, Go compiles the client
IDLE_SECONDS = 70  # longer than any client keeps a stream whose pings nobody answers


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    make_clone(tmp_path)
    return tmp_path


def serve_guide(clone: Path) -> AbstractContextManager[LiveService]:
    _, _, *flags = shlex.split(block(GUIDE, "sh service").replace("8085", "0"))
    return live_service(clone / "ams-data", *flags)


def command_of(language: Language, step: str) -> str:
    [command] = [
        each for each in block(GUIDE, f"sh {step}").replace("\\\n", "").splitlines() if language.program in each
    ]
    return command


def assert_received_all(done: "subprocess.CompletedProcess[str]") -> None:
    """The guide shows the output once: Go and Java print lists in brackets, Java with commas."""
    assert done.returncode == 0, done.stdout
    assert is_shown("..." + block(GUIDE, "text run"), re.sub(r"[\[\],]", "", done.stdout)), done.stdout


def test_the_program_of_the_guide_for_python_works_as_with_googles_emulator(clone: Path) -> None:
    """The programs for other languages are started once, by a test with longer waits."""
    PYTHON.put(clone)
    with serve_guide(clone) as service:
        commands = block(GUIDE, "sh emulator").replace(EMULATOR, service.pubsub) + command_of(PYTHON, "run")
        assert_received_all(run_script(commands, clone, SECONDS))


@pytest.mark.long
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_program_of_the_guide_works_over_tls_with_a_token(language: Language, clone: Path) -> None:
    language.put(clone)
    with live_service(clone / "ams-data", "--pubsub-port", "0", "--tls-self-signed") as service:
        commands = block(GUIDE, "sh tls").replace("8085", service.pubsub.rpartition(":")[2])
        commands += command_of(language, "tls run")
        # The variable is left from the emulator's way, in the same terminal.
        done = run_script(commands, clone, SECONDS, AMS_ENDPOINT=service.base_url, PUBSUB_EMULATOR_HOST="localhost:1")

    assert_received_all(done)


@pytest.fixture
def opened_streams(monkeypatch: pytest.MonkeyPatch) -> list[Streams]:
    serve, opened = Streams.run, list[Streams]()

    async def note_stream(streams: Streams, context: Any, scope: Any) -> None:
        opened.append(streams)
        await serve(streams, context, scope)

    monkeypatch.setattr(Streams, "run", note_stream)
    return opened


@pytest.mark.long
@pytest.mark.parametrize("language", LANGUAGES)
async def test_streams_survive_a_silent_minute(language: Language, clone: Path, opened_streams: list[Streams]) -> None:
    language.put(clone)
    async with running_service(clone / "ams-data", pubsub_port=0, pubsub_emulator=True) as (service, _):
        # The program publishes so long after it opened its streams.
        commands = block(GUIDE, "sh emulator") + f"{command_of(language, 'run')} {IDLE_SECONDS}"
        done = await asyncio.to_thread(run_script, commands.replace(EMULATOR, service.pubsub), clone, SECONDS)

    assert_received_all(done)
    assert len(opened_streams) == language.streams


@pytest.mark.long
def test_a_stop_midway_loses_nothing_and_both_sides_share_topics(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, subscription = "projects/greenhouse/topics/moisture", "projects/greenhouse/subscriptions/watering"
    with serve_guide(clone) as service:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", service.pubsub)
        with PublisherClient() as publisher, SubscriberClient() as subscriber:
            publisher.create_topic(name=topic)
            subscriber.create_subscription(name=subscription, topic=topic)
            ids = [publisher.publish(topic, text, bed="roses").result() for text in (b"dry", b"wet")]
            publisher.stop()
    with serve_guide(clone) as service:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", service.pubsub)
        command = ".venv/bin/ams publish moisture --project greenhouse --data dry --attr bed=lilies"
        done = run_script(command, clone, AMS_ENDPOINT=service.base_url)
        with SubscriberClient() as subscriber:
            received = [
                each.message for each in subscriber.pull(subscription=subscription, max_messages=3).received_messages
            ]

    assert ids == ["0", "1"]
    assert done.stdout == "2\n"
    assert [(each.message_id, each.attributes["bed"], each.data) for each in received] == [
        ("0", "roses", b"dry"), ("1", "roses", b"wet"), ("2", "lilies", b"dry"),
    ]  # fmt: skip


@pytest.mark.long
def test_celery_runs_tasks_as_its_guide_says(clone: Path) -> None:
    write_programs(GUIDE, clone, "")
    with serve_guide(clone) as service, (clone / "worker.log").open("w") as log:
        command = block(GUIDE, "sh worker").replace(EMULATOR, service.pubsub).replace(".venv", "exec .venv")
        with subprocess.Popen(
            ["bash", "-euc", command], cwd=clone, env=environment(), stdout=log, stderr=log
        ) as worker:
            try:
                done = run_script(block(GUIDE, "sh give").replace(EMULATOR, service.pubsub), clone)
            finally:
                worker.kill()
    assert done.returncode == 0, done.stdout
    assert is_shown(block(GUIDE, "text give"), done.stdout)


@pytest.mark.parametrize(("program", "names"), [
    ("garden.py", ("credentials", "api_endpoint", "client_options")),
    ("garden.mjs", ("PubSub", "apiEndpoint", "authClient", "emulatorMode: false")),
    ("garden.go", ("cloud.google.com/go/pubsub/v2", "option.WithEndpoint", "option.WithTokenSource")),
    ("Garden.java", ("usePlaintext", "NoCredentialsProvider", "setEndpoint", "AccessToken")),
])  # fmt: skip
def test_the_guide_names_what_the_program_that_is_run_connects_by(program: str, names: tuple[str, ...]) -> None:
    source, guide = (HERE / program).read_text(), GUIDE.read_text()
    assert [name for name in names if name not in source or f"`{name}`" not in guide] == []


@pytest.mark.parametrize(("versions", "file"), [
    (r"`@google-cloud/pubsub` (\S+) with google-auth-library (\S+),", "package.json"),
    (r"`pubsub/v2`\s(\S+),", "go.mod"), (r"Java (\S+)\.", "pom.xml"),
])  # fmt: skip
def test_the_guide_names_the_versions_that_are_tested(versions: str, file: str) -> None:
    named, tested = re.findall(versions, GUIDE.read_text()), (HERE / file).read_text()
    assert named
    assert [each for each in re.findall(r"\d+\.\d+\.\d+", str(named)) if each not in tested] == []
