import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, insert, select

from ams.core.errors import InvalidInput
from ams.storage.registry.records import Page, PageRequest
from ams.storage.registry.statements import page_start, page_token, read_page

items = Table("items", MetaData(), Column("number", Integer, primary_key=True))


@given(st.integers(1, 10**18 - 1))
def test_a_token_reads_back(number: int) -> None:
    assert page_start(page_token(number)) == number


@given(st.text())
def test_any_text_is_a_token_or_is_refused(text: str) -> None:
    try:
        number = page_start(text)
    except InvalidInput:
        return

    assert number >= 0


@pytest.mark.parametrize("text", ["", "!", "abc", "YWJj", "MTI", "LTE=", "MTIzNDU2Nzg5MDEyMzQ1Njc4OTA=", "1é"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^Invalid page token$"):
        page_start(text)


@given(numbers=st.sets(st.integers(1, 500), max_size=30), size=st.integers(-2, 12) | st.integers())
def test_the_pages_together_are_the_list_from_the_newest_down(numbers: set[int], size: int) -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        items.create(connection)
        if numbers:
            connection.execute(insert(items), [{"number": number} for number in numbers])
        seen: list[int] = []
        token = ""
        for _ in range(len(numbers) + 1):
            page = read_page(connection, select(items), items.c.number, PageRequest(size, token))
            assert page.total == len(numbers)
            assert len(page.items) <= size or size <= 0
            seen += [row.number for row in page.items]
            token = page.next_token
            if not token:
                break
    engine.dispose()

    assert seen == sorted(numbers, reverse=True)


def test_a_page_can_change_its_items_and_keeps_the_rest() -> None:
    assert Page([1, 2], "next", 5).map(str) == Page(("1", "2"), "next", 5)
