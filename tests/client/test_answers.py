"""What the client reads of an answer is all of it: written again it is what the service sent, empty parts too.

`ams -o json` prints answers so.
"""

import importlib
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

import ams.client.wire.subscriptions as own
import ams.wire
from tests.support.description import TABLE


def structs(package: types.ModuleType) -> Iterator[type[msgspec.Struct]]:
    """Every struct that the modules of a package define."""
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        yield from structs_of(importlib.import_module(found.name))


def structs_of(module: types.ModuleType) -> Iterator[type[msgspec.Struct]]:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__:
            yield value


SENT = {
    f"{kind.__module__.removeprefix('ams.wire.')}.{kind.__name__}": kind
    for kind in structs(ams.wire)
    if not kind.__struct_config__.forbid_unknown_fields  # a request
}
READ_AS_IT_CAME = {
    "subscriptions.Subscription": own.Subscription,
    "subscriptions.Subscriptions": own.Subscriptions,
    "push.PushTarget": own.PushTarget,
    "push.Lease": own.PushLease,
}
"""Answers with push configurations, which the client reads into what keeps these as they came."""


def emptiest(kind: Any) -> Any:
    """The emptiest value of a type; texts and parts that may be there are."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return emptiest(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return emptiest(arguments[0])
    if origin is not None:
        return {} if issubclass(origin, Mapping) else []
    if issubclass(kind, msgspec.Struct):
        return made(kind)
    return "x" if kind is str else kind()


def made(kind: type[msgspec.Struct]) -> msgspec.Struct:
    types_of = typing.get_type_hints(kind, include_extras=True)
    always = [
        field.name
        for field in msgspec.structs.fields(kind)
        if field.required or any(mark == ams.wire.base.ALWAYS for mark in typing.get_args(types_of[field.name])[1:])
    ]
    return kind(**{name: emptiest(types_of[name]) for name in always})


def test_all_that_routes_read_and_answer_is_of_the_wire() -> None:
    used = {kind for row in TABLE for kind in (row.reads, row.answers) if kind is not None}

    assert {kind.__module__.rpartition(".")[0] for kind in used} == {"ams.wire"}


@pytest.mark.parametrize("name", sorted(SENT))
def test_an_answer_read_and_written_again_is_what_was_sent(name: str) -> None:
    sent = msgspec.json.encode(made(SENT[name]))

    read = msgspec.json.decode(sent, type=READ_AS_IT_CAME.get(name, SENT[name]))

    assert msgspec.json.decode(msgspec.json.encode(read)) == msgspec.json.decode(sent)
