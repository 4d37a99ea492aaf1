import asyncio

import msgspec

from ams.http.routes import answers
from ams.storage.registry.records import Page
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
