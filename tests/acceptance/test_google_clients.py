"""Google's own clients in four languages, as the guides have them: unchanged, against the real service."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from ams.pubsub.streaming import Streams
from tests.acceptance.clients.google import HERE, LANGUAGES, Language
from tests.support.documents import block, environment, follow, is_shown, make_clone, run, steps, write_programs
from tests.support.service import live_service, running_service

pytestmark = pytest.mark.acceptance

EMULATOR = "localhost:8085"
"""Where the guides say that the service is."""
SECONDS = 300
"""Until a program has surely failed; the first time, Go compiles the client."""
IDLE_SECONDS = 70
"""Longer than any client keeps a stream whose pings nobody answers."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    make_clone(tmp_path)
    return tmp_path


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_program_of_a_guide_works_as_with_googles_emulator(language: Language, clone: Path) -> None:
    language.get(clone)
    write_programs(language.page, clone, "")
    with live_service(clone / "ams-data", "--pubsub-port", "0", "--pubsub-emulator") as service:
        follow(language.page, clone, service.base_url, seconds=SECONDS, instead={EMULATOR: service.pubsub})


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_program_of_a_guide_works_over_tls_with_a_token(language: Language, clone: Path) -> None:
    language.get(clone)
    write_programs(language.page, clone, "")
    with live_service(clone / "ams-data", "--pubsub-port", "0", "--tls-self-signed") as service:
        commands = block(language.page, "sh tls").replace("8085", service.pubsub.rpartition(":")[2])
        done = run(commands, clone, SECONDS, AMS_ENDPOINT=service.base_url)

    assert done.returncode == 0, done.stdout
    assert is_shown("..." + block(language.page, "text"), done.stdout)


@pytest.mark.long
@pytest.mark.parametrize("language", LANGUAGES)
async def test_streams_live_through_a_minute_without_a_message(
    language: Language, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    language.get(clone)
    write_programs(language.page, clone, "")
    serve, opened = Streams.run, Counter[str]()

    async def counted(streams: Streams, *arguments: object) -> None:
        opened["streams"] += 1
        await serve(streams, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Streams, "run", counted)
    async with running_service(clone / "ams-data", pubsub_port=0, pubsub_emulator=True) as (service, _):
        [only] = steps(language.page)
        commands = f"{only.commands.rstrip()} {IDLE_SECONDS}".replace(EMULATOR, service.pubsub)
        done = await asyncio.to_thread(run, commands, clone, SECONDS)

    assert done.returncode == 0, done.stdout
    assert is_shown("..." + (only.shown or ""), done.stdout)
    assert opened["streams"] == language.streams


@pytest.mark.parametrize(
    ("name", "pinned", "file"),
    [
        ("node", "@google-cloud/pubsub@6.2.0", "package.json"),
        ("go", "cloud.google.com/go/pubsub/v2@v2.8.1", "go.mod"),
        ("java", "<version>1.150.1</version>", "pom.xml"),
    ],
)
def test_a_guide_gets_the_version_that_is_tested(name: str, pinned: str, file: str) -> None:
    [language] = [each.values[0] for each in LANGUAGES if each.id == name]
    version = pinned.strip("</version>").rpartition("@")[2]

    assert pinned in language.page.read_text()
    assert version in (HERE / file).read_text()
