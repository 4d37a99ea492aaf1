"""Schemas go out as they are stored: to read each first would take a list of large ones long."""

from types import SimpleNamespace
from typing import Any, cast

from ams.http.routes.schemas import SchemaRoutes
from ams.storage.registry.records import Schema, SchemaContent

AS_STORED = '{"type" :"object","maximum":1.50e1}'


async def test_schemas_are_listed_without_being_read() -> None:
    contents = [SchemaContent("json", AS_STORED, None), SchemaContent("json", None, '{"a" :"b"}')]

    class Stored:
        async def list(self, _caller: object) -> list[Schema]:
            return [cast("Any", SimpleNamespace)(id="u", name=f"X{n}", content=each) for n, each in enumerate(contents)]

    call: Any = SimpleNamespace(caller=SimpleNamespace(here=SimpleNamespace(name="P")))
    answer = (await SchemaRoutes(cast("Any", Stored())).list(call)).decode()

    assert answer == (
        '{"schemas":['
        f'{{"uuid":"u","name":"projects/P/schemas/X0","type":"json","schema":{AS_STORED}}},'
        '{"uuid":"u","name":"projects/P/schemas/X1","type":"json","schema":{},"attributes":{"a" :"b"}}]}'
    )
