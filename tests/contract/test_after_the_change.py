"""A stored change is answered as done, even if the rest of its request fails (contract 16)."""

import re
from collections.abc import Callable

import pytest

from ams.wire.actions import ACTIONS
from tests.contract.rows import A_TOPIC, SUBSCRIPTION, Answer, Has, Row, post, put
from tests.contract.runner import Runner, is_hot
from tests.contract.test_contract import ROWS
from tests.support.after_change import fail_after_change


def action_of(row: Row) -> str:
    path = (row.ask.root + row.ask.path).partition("?")[0].replace("$", "")
    forms = {each.name: re.sub(r"\{\w+\}", "[^/:]+", each.whole_path) for each in ACTIONS.values()}
    names = [name for name, form in forms.items() if re.fullmatch(form, path)]
    return next((each for each in names if ACTIONS[each].method == row.ask.method), "")


MOVED = Row(
    "19.5", "a parallel subscription is moved", post(SUBSCRIPTION + ":seek", {"offset": 0}), Answer(Has(current=0)),
    (A_TOPIC, put(SUBSCRIPTION, {"topic": "projects/$P/topics/T", "type": "parallel"})),
)  # fmt: skip
ONE_OF_EACH = {
    action_of(row): row
    for row in reversed(ROWS)
    if row.ask.method != "GET" and row.gets.status == 200 and not is_hot(row.ask) and not row.needs_clock
}


@pytest.mark.embedded("the engines that fail are those in this process")
@pytest.mark.parametrize("row", [pytest.param(row, id=row.says) for row in (*ONE_OF_EACH.values(), MOVED)])
def test_a_stored_change_stays_done(row: Row, runner: Callable[[str], Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    fail_after_change(monkeypatch, lambda request: request == b"the-change")
    ask = row.ask._replace(headers={**row.ask.headers, "x-request-id": "the-change"})
    runner(row.served).run_row(row._replace(ask=ask, then=()))
