"""The worlds there are samples of, and their messages in requests."""

import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any, NamedTuple

import msgspec

from ams.client import Message
from ams.pipeline.errors import WrongOption
from demo.pipeline.samples import Sample

WORLDS = ("accounting", "alarms", "cloud", "federation", "monitoring")
"""Modules beside this one."""
_PLAIN = {"int": int, "float": float, "bool": bool, "str": str}
_MESSAGES, _BYTES = 500, 2**20


class Request(NamedTuple):
    """Messages that are published together."""

    topic: str
    messages: list[Message]


def sizes_of(world: str) -> dict[str, Any]:
    """Return what can be said of how much there is in a world, with what it is by itself."""
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


def requests(made: Iterable[Sample]) -> Iterator[Request]:
    """Put samples together by topics, whose messages stay in their order."""
    waiting: dict[str, list[Message]] = defaultdict(list)
    bytes_of: dict[str, int] = defaultdict(int)
    for each in made:
        waiting[each.topic].append(Message(each.data, each.attributes))
        bytes_of[each.topic] += len(each.data)
        if len(waiting[each.topic]) == _MESSAGES or bytes_of[each.topic] > _BYTES:
            yield Request(each.topic, waiting.pop(each.topic))
            del bytes_of[each.topic]
    for topic, messages in waiting.items():
        yield Request(topic, messages)


def _module(world: str) -> Any:
    if world not in WORLDS:
        raise WrongOption("WORLD", f"there is no {world!r}; there are {', '.join(WORLDS)}")
    return importlib.import_module(f"demo.pipeline.samples.{world}")
