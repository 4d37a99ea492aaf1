import asyncio
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.http.limits import ClientLeft
from ams.http.routing import Call, page_request
from ams.storage.registry.records import PageRequest


def call(query: str | bytes) -> Call:
    return Call({}, query.encode() if isinstance(query, str) else query, None, None, AsyncMock(return_value=b""))


@pytest.mark.parametrize(
    ("query", "page"),
    [("", PageRequest(0, "")), ("pageSize=&pageToken=", PageRequest(0, "")),
     ("pageSize=2&pageToken=bm8%3D", PageRequest(2, "bm8=")), ("pageSize=%2B2", PageRequest(2, "")),
     ("pageSize=-2", PageRequest(0, "")), ("pageSize=" + "9" * 5000, PageRequest(10**18, "")),
     ("pageSize=2&pageSize=x", PageRequest(2, "")), ("PageSize=x", PageRequest(0, ""))],
)  # fmt: skip
def test_4_how_a_page_is_asked_for(query: str, page: PageRequest) -> None:
    assert page_request(call(query)) == page


@pytest.mark.parametrize("size", ["x", "1.0", "1_0", "0x1", "%20", "%D9%A1"])
def test_4_what_is_no_integer_is_refused(size: str) -> None:
    with pytest.raises(InvalidInput, match="^Invalid page size$"):
        page_request(call(f"pageSize={size}"))


@given(st.binary(max_size=60), st.text(max_size=5))
def test_any_query_can_be_looked_into(query: bytes, name: str) -> None:
    value = call(query).parameter(name)

    assert value is None or isinstance(value, str)


@pytest.mark.parametrize(("client_leaves", "error"), [(True, ClientLeft), (False, asyncio.CancelledError)])
async def test_long_work_ends_with_the_client_who_asked_for_it_and_is_cancelled_by_a_stop(
    client_leaves: bool, error: type[BaseException]
) -> None:
    left = asyncio.Event()

    async def receive() -> dict[str, str]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def work() -> None:
        with Call({}, b"", None, None, AsyncMock(), (), receive).watched() as gone:
            task = asyncio.ensure_future(asyncio.Event().wait())
            assert gone is not None
            gone.add_done_callback(lambda _: task.cancel())
            await task

    working = asyncio.ensure_future(work())
    await asyncio.sleep(0)

    if client_leaves:
        left.set()
    else:
        working.cancel()

    with pytest.raises(error):
        await working
