"""Google's own clients, and Celery on top of them, run as in the guides against the real service."""

import asyncio
import re
import shlex
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from ams.pubsub.streaming import Streams
from tests.acceptance.clients.google import HERE, LANGUAGES, Language
from tests.support.documents import (
    ROOT,
    block,
    environment,
    follow,
    is_shown,
    make_clone,
    run_script,
    steps,
    write_programs,
)
from tests.support.service import LiveService, live_service, running_service

pytestmark = pytest.mark.acceptance

EMULATOR = "localhost:8085"
TUTORIAL = ROOT / "docs" / "tutorial" / "in-the-emulators-place.md"
CELERY = ROOT / "docs" / "how-to" / "google-pubsub-celery.md"
SECONDS = 300  # until a program has surely failed; the first time, Go compiles the client
IDLE_SECONDS = 70  # longer than any client keeps a stream whose pings nobody answers


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    make_clone(tmp_path)
    return tmp_path


def serve_page(page: Path, clone: Path) -> AbstractContextManager[LiveService]:
    _, _, *flags = shlex.split(block(page, "sh service").replace("8085", "0"))
    return live_service(clone / "ams-data", *flags)


def follow_step(page: Path, step: str, clone: Path, service: LiveService) -> None:
    commands = block(page, f"sh {step}").replace(EMULATOR, service.pubsub)
    done = run_script(commands, clone, AMS_ENDPOINT=service.base_url, PUBSUB_EMULATOR_HOST=service.pubsub)
    assert done.returncode == 0, done.stdout
    assert is_shown("..." + block(page, f"text {step}"), done.stdout), done.stdout


def test_the_program_of_the_guide_for_python_works_as_with_googles_emulator(clone: Path) -> None:
    """The programs for other languages are started once, by a test with longer waits."""
    page = ROOT / "docs" / "how-to" / "google-pubsub-python.md"
    write_programs(page, clone, "")
    with serve_page(page, clone) as service:
        follow(page, clone, service.base_url, seconds=SECONDS, instead={EMULATOR: service.pubsub})


@pytest.mark.long
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_program_of_a_guide_works_over_tls_with_a_token(language: Language, clone: Path) -> None:
    language.get(clone)
    write_programs(language.page, clone, "")
    with live_service(clone / "ams-data", "--pubsub-port", "0", "--tls-self-signed") as service:
        commands = block(language.page, "sh tls").replace("8085", service.pubsub.rpartition(":")[2])
        # The variable is left from the emulator's way, in the same terminal.
        done = run_script(commands, clone, SECONDS, AMS_ENDPOINT=service.base_url, PUBSUB_EMULATOR_HOST="localhost:1")

    assert done.returncode == 0, done.stdout
    assert is_shown("..." + block(language.page, "text"), done.stdout)


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
async def test_streams_live_through_a_minute_of_silence(
    language: Language, clone: Path, opened_streams: list[Streams]
) -> None:
    language.get(clone)
    write_programs(language.page, clone, "")
    async with running_service(clone / "ams-data", pubsub_port=0, pubsub_emulator=True) as (service, _):
        [only] = steps(language.page)  # the program publishes so long after it opened its streams
        commands = f"{only.commands.rstrip()} {IDLE_SECONDS}".replace(EMULATOR, service.pubsub)
        done = await asyncio.to_thread(run_script, commands, clone, SECONDS)

    assert done.returncode == 0, done.stdout
    assert is_shown("..." + (only.shown or ""), done.stdout)
    assert len(opened_streams) == language.streams


@pytest.mark.long
def test_the_tutorial_works_and_a_stop_in_the_middle_loses_nothing(clone: Path) -> None:
    write_programs(TUTORIAL, clone, "")
    with serve_page(TUTORIAL, clone) as service:
        follow_step(TUTORIAL, "publish", clone, service)
    with serve_page(TUTORIAL, clone) as service:
        follow_step(TUTORIAL, "ams", clone, service)
        follow_step(TUTORIAL, "receive", clone, service)


@pytest.mark.long
def test_celery_runs_tasks_as_its_guide_says(clone: Path) -> None:
    write_programs(CELERY, clone, "")
    with serve_page(CELERY, clone) as service, (clone / "worker.log").open("w") as log:
        command = block(CELERY, "sh worker").replace(EMULATOR, service.pubsub).replace(".venv", "exec .venv")
        with subprocess.Popen(
            ["bash", "-euc", command], cwd=clone, env=environment(), stdout=log, stderr=log
        ) as worker:
            try:
                follow_step(CELERY, "give", clone, service)
            finally:
                worker.kill()


@pytest.mark.parametrize(("language", "pinned", "file"), [
    ("node", "@google-cloud/pubsub@6.2.0 google-auth-library@11.3.4", "package.json"),
    ("go", "cloud.google.com/go/pubsub/v2@v2.8.1", "go.mod"), ("java", "<version>1.150.1</version>", "pom.xml"),
])  # fmt: skip
def test_a_guide_gets_the_version_that_is_tested(language: str, pinned: str, file: str) -> None:
    page = ROOT / "docs" / "how-to" / f"google-pubsub-{language}.md"
    tested = (HERE / file).read_text()
    assert pinned in page.read_text()
    assert [each for each in re.findall(r"\d+\.\d+\.\d+", pinned) if each not in tested] == []
