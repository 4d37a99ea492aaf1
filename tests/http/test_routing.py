import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.http.routing import Call, page_request
from ams.storage.registry.records import PageRequest


async def nothing() -> bytes:
    return b""


def call(query: str) -> Call:
    return Call({}, query.encode(), None, None, nothing)


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("", PageRequest(0, "")),
        ("pageSize=&pageToken=", PageRequest(0, "")),
        ("pageSize=2&pageToken=bm8%3D", PageRequest(2, "bm8=")),
        ("pageSize=%2B2", PageRequest(2, "")),
        ("pageSize=-2", PageRequest(0, "")),
        ("pageSize=" + "9" * 5000, PageRequest(10**18, "")),
        ("pageSize=2&pageSize=x", PageRequest(2, "")),
        ("PageSize=x", PageRequest(0, "")),
    ],
)
def test_4_how_a_page_is_asked_for(query: str, page: PageRequest) -> None:
    assert page_request(call(query)) == page


@pytest.mark.parametrize("size", ["x", "1.0", "1_0", "0x1", "%20", "%D9%A1"])
def test_4_what_is_no_integer_is_refused(size: str) -> None:
    with pytest.raises(InvalidInput, match="^Invalid page size$"):
        page_request(call(f"pageSize={size}"))


@given(st.binary(max_size=60), st.text(max_size=5))
def test_any_query_can_be_looked_into(query: bytes, name: str) -> None:
    value = call("")._replace(query=query).parameter(name)

    assert value is None or isinstance(value, str)
