"""Export files: written, read whole, made by others, and very large."""

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ams.app.moving import files
from ams.app.moving.exporter import export
from ams.app.moving.files import STANDARD, lines, reading, writing
from ams.app.moving.importer import import_
from ams.core.clock import SystemClock
from ams.core.errors import Unusable
from ams.core.names import new_topic_id
from ams.storage.export_format import FORMAT, End, Header, Log, Message, Project, Topic, encode_line
from tests.app.moving.installation import installation, service
from tests.app.moving.lines import ignore_progress, line, whole_export, write_lines
from tests.support.clock import ManualClock


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    with writing(path) as file:
        file.write(b'{"kind":"header","format":1}\n')

    with reading(path) as file:
        assert [number for number, _ in lines(file, path)] == [1]
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(Unusable, match="File exists"), writing(path):
        pass


@pytest.mark.parametrize("error", [ValueError("x"), OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_of_what_was_not_written_to_its_end_nothing_is_left(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "file.gz"

    def fail() -> None:
        with writing(str(path)) as file:
            file.write(b"half")
            raise error

    with pytest.raises((Unusable, ValueError, KeyboardInterrupt)) as raised:
        fail()

    assert not path.exists()
    assert not isinstance(error, OSError) or "nothing is left of it" in str(raised.value)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="No such file"), writing(str(tmp_path / "nowhere" / "file")):
        pass


def test_a_reader_of_stdout_that_left_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    end, start = os.pipe()
    os.close(end)
    with os.fdopen(start, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(Unusable, match="the export is not whole"), writing(STANDARD) as file:
            file.write(b"x" * 1_000_000)
        monkeypatch.undo()
        stdout.buffer.raw.close()


def test_a_line_that_never_ends_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 100)
    path = tmp_path / "file"
    path.write_bytes(b"[" * 1000)

    with reading(str(path)) as file, pytest.raises(Unusable, match="line 1: longer than a line can be"):
        list(lines(file, str(path)))


ROOT = Path(__file__).parents[3]
LONG = "t" * 5000


def write_converted(path: Path, clock: ManualClock) -> str:
    data = base64.b64encode(b"hello").decode()
    messages = [line("message", offset=40 + number, time=clock.now - 1000 + number, data=data) for number in range(3)]
    return write_lines(path, whole_export(
        line("log", project="P", topic="T", first=40),
        *messages,
        line("user", name="maker", token=LONG, service_roles=["service_admin"]),
        line("user", name="made", token="short", created_by="maker", email="made@example.org"),
        line("project", name="P", created_by="maker"),
        line("membership", user="made", project="P", roles=["consumer"]),
        line("schema", project="P", name="X", revisions=[{"revision": 3, "type": "json", "payload": "{}"}]),
        line("topic", project="P", name="T", schema="X", authorized=["made"]),
        line("topic", project="P", name="without-a-log"),
        line("subscription", project="P", name="S", topic="T", offset=41, authorized=["made"]),
        line("registration", name="somebody"),
    ))  # fmt: skip


async def test_a_detached_subscription_stands_nowhere_here_either(tmp_path: Path) -> None:
    clock = ManualClock()
    fields = {"project": "P", "topic": "T", "ack_deadline_seconds": 10}
    subs = [
        line("subscription", name=name, parallel={"detached": detached}, **fields)
        for name, detached in (("used", False), ("ended", True))
    ]
    lines = line("project", name="P"), line("topic", project="P", name="T"), *subs
    async with installation(tmp_path / "new", clock) as target:
        await import_(target, write_lines(tmp_path / "file", whole_export(*lines)), ignore_progress)
        named = {each.name: each.id for each in await target.registry.subscriptions.all()}
        assert (await target.cursors.places()).keys() == {named["used"]}
    async with service(tmp_path / "new", clock) as api:
        assert (await api.ask("GET", "/projects/P/subscriptions/ended"))["detached"]
    async with installation(tmp_path / "new", clock) as target:
        assert (await target.cursors.places()).keys() == {named["used"]}


def tail(path: Path, clock: ManualClock, first: int, last: int, *rest: dict[str, object], **log: object) -> str:
    data = base64.b64encode(b"hello").decode()
    messages = [line("message", offset=number, time=clock.now - 1000, data=data) for number in range(first, last)]
    return write_lines(path, whole_export(line("log", project="P", topic="T", first=first, **log), *messages, *rest))


async def test_messages_go_ahead_and_a_later_file_brings_what_came_since_and_the_rest(tmp_path: Path) -> None:
    clock, own = ManualClock(), {"id": "0f5fd0ba-6a4c-4f43-a1b5-8f4d6a1f0a01"}
    rest = line("project", name="P"), line("topic", project="P", name="T")
    async with installation(tmp_path / "new", clock) as target:
        await import_(target, tail(tmp_path / "ahead", clock, 3, 6, *rest, **own), ignore_progress, messages_only=True)
        assert await target.registry.is_empty()
        with pytest.raises(Unusable, match="messages 6 to 6 of topic T of project P are missing"):
            await import_(target, tail(tmp_path / "late", clock, 7, 9, *rest, **own), ignore_progress)
        with pytest.raises(Unusable, match="topic T of project P has no id in the file"):
            await import_(target, tail(tmp_path / "named", clock, 6, 9), ignore_progress, messages_only=True)
        await import_(target, tail(tmp_path / "tail", clock, 6, 9, *rest, **own), ignore_progress)
    async with service(tmp_path / "new", clock) as api:
        assert await api.ask("GET", "/projects/P/topics/T:offsets") == {"min": 3, "max": 9}


async def test_names_are_enough_and_tokens_of_any_length_open(tmp_path: Path) -> None:
    clock = ManualClock()
    path = write_converted(tmp_path / "file", clock)
    async with installation(tmp_path / "new", clock) as target:
        await import_(target, path, ignore_progress)

    async with service(tmp_path / "new", clock) as api:
        assert (await api.ask("GET", "/users/profile", token=LONG))["name"] == "maker"
        made = await api.ask("GET", "/users/profile", token="short")
        assert (made["created_by"], made["created_on"]) == ("maker", "2023-11-14T22:13:20Z")
        assert [each["project"] for each in made["projects"]] == ["P"]
        pulled = (await api.ask("POST", "/projects/P/subscriptions/S:pull", {}, "short"))["receivedMessages"]
        assert [each["message"]["messageId"] for each in pulled] == ["41"]
        assert await api.ask("GET", "/projects/P/topics/without-a-log:offsets") == {"min": 0, "max": 0}
        assert (await api.ask("GET", "/projects/P/schemas/X"))["schema"] == {}
        assert len((await api.ask("GET", "/registrations?activation_token="))["user_registrations"]) == 1


async def test_messages_of_a_registry_that_was_lost_are_left_alone(tmp_path: Path) -> None:
    clock = ManualClock()
    async with installation(tmp_path / "new", clock) as target:
        await target.log.create(new_topic_id())
        for _ in range(2):
            with pytest.raises(Unusable, match="the log holds topics that are not in the file"):
                await import_(target, write_converted(tmp_path / "file", clock), ignore_progress)
        assert await target.registry.is_empty()


async def test_holes_are_moved_as_holes(tmp_path: Path) -> None:
    clock = ManualClock()
    message = [line("message", offset=each, time=clock.now, data="") for each in (2, 3, 7)]
    rest = line("project", name="P"), line("topic", project="P", name="T")
    lines = [line("log", project="P", topic="T"), *message, *rest]
    path = write_lines(tmp_path / "file", whole_export(*lines))
    async with installation(tmp_path / "one", clock) as target:
        await import_(target, path, ignore_progress)
    async with installation(tmp_path / "one", clock) as source:
        await export(source, str(tmp_path / "again"), ignore_progress)

    async with installation(tmp_path / "two", clock) as target:
        await import_(target, str(tmp_path / "again"), ignore_progress)
        (topic,) = await target.log.topics()
        assert (await target.log.bounds(topic)).end == 8
        assert [each.offset for each in await target.log.read(topic, 2, max_messages=9, max_bytes=999)] == [2, 3]
        assert [each.offset for each in await target.log.read(topic, 4, max_messages=9, max_bytes=999)] == [7]


MESSAGES = 100_000
_MEASURE = """
import asyncio, resource, sys
from pathlib import Path
from ams.core.clock import SystemClock
from ams.app.moving.exporter import export
from ams.app.moving.importer import import_
from ams.core.names import new_topic_id
from tests.app.moving.installation import installation

async def main(folder):
    quiet = lambda done, expected: None
    async with installation(folder / "data", SystemClock()) as opened:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await import_(opened, str(folder / "file"), quiet)
        await export(opened, str(folder / "again"), quiet)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.long
def test_very_many_messages_need_little_memory(tmp_path: Path) -> None:
    now = SystemClock().wall()
    counts = {"log": 1, "message": MESSAGES, "project": 1, "topic": 1}
    data = base64.b64encode(b"x" * 375).decode()
    with (tmp_path / "file").open("wb") as file:
        file.write(encode_line(Header(format=FORMAT)) + encode_line(Log(project="P", topic="T")))
        for number in range(MESSAGES):
            file.write(encode_line(Message(offset=number, time=now - MESSAGES + number // 7, data=data)))
        file.writelines(map(encode_line, (Project(name="P"), Topic(project="P", name="T"), End(counts=counts))))

    ran = subprocess.run([sys.executable, "-c", _MEASURE, tmp_path], cwd=ROOT, capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "again").stat().st_size > 50_000_000
    assert int(ran.stdout.splitlines()[-1]) < 40_000, "KiB, where the messages alone are 50 MB"
