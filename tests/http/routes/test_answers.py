"""Long lists are shown with breaths in between, and schemas as they are stored: to read each would take long."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from ams.http.routes import answers
from ams.http.routes.schemas import SchemaRoutes
from ams.storage.registry.records import Page, Schema, SchemaContent
from ams.wire.projects import Topic, Topics


async def test_a_long_list_is_shown_with_breaths_in_between() -> None:
    shown = most = 0

    def show(number: int) -> Topic:
        nonlocal shown
        shown += 1
        return Topic(str(number), "")

    writing = asyncio.ensure_future(answers.encode_page(Topics, "topics", Page(range(2_300), "next", 9_000), show))
    while not writing.done():
        before = shown
        await asyncio.sleep(0)
        most = max(most, shown - before)

    page = msgspec.json.decode(await writing)
    assert [each["name"] for each in page["topics"]] == [str(number) for number in range(2_300)]
    assert (page["nextPageToken"], page["totalSize"], most) == ("next", 9_000, 500)


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
