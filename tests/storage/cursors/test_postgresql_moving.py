"""Calls folded into one row: the pure part of moving cursors in PostgreSQL."""

import asyncio
from typing import Any

from ams.core.errors import InvalidInput
from ams.storage.cursors import base
from ams.storage.cursors.base import Cursor, HandOut
from ams.storage.cursors.postgresql_connection import Call, Step, fold
from ams.storage.cursors.postgresql_rows import SERIES, Row

TOPIC = b"t" * 16
NOW = 1_000
ROW = Row(Cursor(TOPIC, 5, handed=(HandOut(10, NOW),)), 70)


def call(step: Step, **words: Any) -> Call:
    return Call(step, 0.0, asyncio.get_running_loop().create_future(), **words)


def acknowledge(last: int) -> Step:
    return lambda cursor: (base.acknowledge(cursor, last, NOW, NOW), None)


def seek(offset: int) -> Step:
    return lambda cursor: (base.seek(cursor, offset), True)


async def test_calls_for_one_cursor_follow_one_another_on_one_row() -> None:
    made = fold(ROW, [call(acknowledge(6)), call(acknowledge(30)), call(acknowledge(9)), call(acknowledge(9))])

    assert (made.after.value.offset, made.after.version) == (10, 72)
    assert [type(outcome) for outcome in made.outcomes] == [type(None), InvalidInput, type(None), type(None)]


async def test_what_changes_nothing_is_not_written() -> None:
    assert not fold(ROW, [call(acknowledge(3)), call(acknowledge(30))]).moves


async def test_a_seek_begins_a_series_of_versions_and_is_known_by_it_also_after_others_have_moved_the_cursor() -> None:
    seeking = call(seek(2), series=9_000)
    sought = fold(ROW, [seeking]).after
    assert sought.version == 9_000
    later = Row(sought.value._replace(offset=40), sought.version + 3)

    seeking.unsure = True
    again = fold(later, [seeking])

    assert (again.outcomes, again.after) == ([True], Row(later.value, later.version + 1))
    assert fold(Row(later.value, 9_000 + SERIES), [seeking]).after == Row(seek(2)(later.value)[0], 9_000)


async def test_what_was_perhaps_written_before_is_written_again_even_if_it_is_there() -> None:
    made = fold(ROW, [call(acknowledge(3), unsure=True)])

    assert made.moves
    assert (made.after.value, made.after.version) == (ROW.value, ROW.version + 1)
