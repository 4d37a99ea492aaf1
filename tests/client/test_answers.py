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

import ams.client.wire
import ams.http.routes
from ams.http import messages

OTHER_NAMES = {"NewSecret": "PushSecret", "PushReport": "PushStatus", "PulledMessage": "Message", "Token": "NamedToken"}
"""Answers that the client calls otherwise."""
NOT_PRINTED = {
    "Lease": "for push workers",
    "PushTarget": "for push workers",
    "Ready": "for push workers",
    "ListPage": "what pages have in common",
    "Nothing": "an empty object",
    "PushConfig": "printed as it came",
    "PushServer": "printed as it came",
    "Status": "printed as it came",
    "Version": "printed as it came",
}


def structs(package: types.ModuleType) -> Iterator[type[msgspec.Struct]]:
    """Every struct that the modules of a package define."""
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        yield from structs_of(importlib.import_module(found.name))


def structs_of(module: types.ModuleType) -> Iterator[type[msgspec.Struct]]:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__:
            yield value


SENT = {
    kind.__name__: kind
    for kind in (*structs(ams.http.routes), *structs_of(messages))
    if not kind.__struct_config__.forbid_unknown_fields  # a request
}
READ = {kind.__name__: kind for kind in structs(ams.client.wire) if kind.__module__ != "ams.client.wire.authn"}


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
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    return kind(**{name: emptiest(types_of[name]) for name in required})


def test_every_answer_is_read_by_the_client_or_not_printed() -> None:
    assert {OTHER_NAMES.get(name, name) for name in SENT.keys() - NOT_PRINTED} <= READ.keys()


@pytest.mark.parametrize("name", sorted(SENT.keys() - NOT_PRINTED))
def test_an_answer_read_and_written_again_is_what_was_sent(name: str) -> None:
    sent = msgspec.json.encode(made(SENT[name]))

    read = msgspec.json.decode(sent, type=READ[OTHER_NAMES.get(name, name)])

    assert msgspec.json.decode(msgspec.json.encode(read)) == msgspec.json.decode(sent)
