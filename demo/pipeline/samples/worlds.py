"""The worlds there are samples of, publishing them, and the command that does so."""

import importlib
import inspect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Annotated, Any

import msgspec
import typer

from ams.cli.arguments import option, pairs
from ams.cli.command import Session, with_options
from ams.cli.exit_codes import Usage
from ams.cli.output import columns
from ams.client import Message
from ams.client.client import Project
from ams.client.errors import AlreadyExists
from ams.pipeline.errors import WrongOption
from demo.pipeline.samples import Sample

WORLDS = ("accounting", "alarms", "cloud", "federation", "monitoring")
_PLAIN = {"int": int, "float": float, "bool": bool, "str": str}
_MESSAGES, _BYTES = 500, 2**20


def sizes_of(world: str) -> dict[str, Any]:
    return {
        name: each.default
        for name, each in inspect.signature(_module(world).messages).parameters.items()
        if type(each.default).__name__ in _PLAIN
    }


def samples(world: str, seed: int, day: date, sizes: Mapping[str, str]) -> Iterator[Sample]:
    """Yield the messages of a day; raise `WrongOption` for a world or a size there is not."""
    known = sizes_of(world)
    read: dict[str, Any] = {}
    for name, text in sizes.items():
        if name not in known:
            raise WrongOption("--size", f"{world} has no {name!r}; there are {', '.join(known)}")
        try:
            read[name] = msgspec.convert(text, type(known[name]), strict=False)
        except msgspec.ValidationError:
            kind = type(known[name]).__name__
            raise WrongOption("--size", f"{name} is {kind}, and {text[:40]!r} is none") from None
    found: Iterator[Sample] = _module(world).messages(seed, day, **read)
    return found


def publish_all(project: Project, made: Iterable[Sample]) -> Counter[str]:
    """Publish samples, in order for each topic; topics that are not there are created. Returns messages by topic."""
    waiting: dict[str, list[Message]] = defaultdict(list)
    bytes_of: Counter[str] = Counter()
    counts: Counter[str] = Counter()

    def publish(topic: str) -> None:
        if topic not in counts:
            with suppress(AlreadyExists):
                project.topic(topic).create()
        counts[topic] += len(project.topic(topic).publish(waiting.pop(topic)))
        del bytes_of[topic]

    for each in made:
        waiting[each.topic].append(Message(each.data, each.attributes))
        bytes_of[each.topic] += len(each.data)
        if len(waiting[each.topic]) == _MESSAGES or bytes_of[each.topic] > _BYTES:
            publish(each.topic)
    for topic in list(waiting):
        publish(topic)
    return counts


def _module(world: str) -> Any:
    if world not in WORLDS:
        raise WrongOption("WORLD", f"there is no {world!r}; there are {', '.join(WORLDS)}")
    return importlib.import_module(f"demo.pipeline.samples.{world}")


@with_options
def sample(
    session: Session,
    world: Annotated[str, typer.Argument(metavar="WORLD", help="What is made up; see the list in the reference.")],
    seed: Annotated[int, option("The same seed makes the same messages.")] = 1,
    day: Annotated[str | None, option("YYYY-MM-DD; default today, UTC.", metavar="DAY")] = None,
    size: Annotated[list[str] | None, option("How much of what; repeatable.", "--size", metavar="KEY=VALUE")] = None,
) -> None:
    """Publish a made-up day of one of EGI's services, to try jobs on; topics that are not there are made."""
    made = samples(world, seed, _day(day), pairs(size, "--size"))
    counts = publish_all(session.patient.project(session.project), made)
    rows = [(topic, f"{count}") for topic, count in sorted(counts.items())]
    session.show(dict(counts), columns(("TOPIC", "MESSAGES"), rows))


def _day(day: str | None) -> date:
    try:
        return date.fromisoformat(day) if day else datetime.now(UTC).date()
    except ValueError:
        raise Usage(f"--day {day!r} is no day such as 2024-03-05") from None
