"""The demo of a move: the small day is moved under load, and what it is made of."""

import json
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from demo.migrate.books import balance
from demo.migrate.clients.book import ACKNOWLEDGE, OK, PUBLISH, PULL
from demo.migrate.day import SMALL, Log, made_up, records
from demo.migrate.site import Pushed
from tests.support.documents import environment

LAST_LINE = re.compile(
    r"migrate-demo: users 44 topics 34 messages \d+ lost 0 repeated 0 refused 0 seconds \d+\.\d pause \d+\.\d"
)
PUSHED = Pushed("https://localhost:1/in", "hash", "header")


@pytest.mark.acceptance
@pytest.mark.kafka
@pytest.mark.haproxy
@pytest.mark.curl
def test_a_small_day_is_moved_under_load_and_no_client_notices(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "demo.migrate", "--small", "--folder", tmp_path / "demo"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert LAST_LINE.fullmatch(ran.stdout.splitlines()[-1])


def test_a_seed_makes_the_same_day_and_another_seed_another() -> None:
    first, again, other = (
        {name: [each.get("token") or each.get("name") for each in documents] for name, documents in day.items()}
        for day in (made_up(SMALL, PUSHED, seed).collections for seed in (1, 1, 2))
    )

    assert first == again
    assert first != other


def test_the_day_has_as_much_as_is_asked_for() -> None:
    day = made_up(SMALL, PUSHED)

    assert len(day.collections["users"]) >= SMALL.users
    assert len(day.collections["projects"]) >= SMALL.projects
    assert len(day.collections["topics"]) >= SMALL.topics
    assert SMALL.messages * 0.9 < day.kept <= SMALL.messages


def test_a_dirty_log_has_records_of_every_kind_and_ends_in_one_that_is_empty() -> None:
    values = [value for _, value in records(Log("p.t", 500, dirty=True), 1, datetime.now(UTC))]

    assert (len(values), values[-1]) == (500, b"")
    said = [json.loads(each) for each in values if each.strip(b"\0")]
    kinds = Counter(
        type(each["attributes"] if isinstance(each, dict) and "attributes" in each else each) for each in said
    )
    assert {dict, list, str} <= kinds.keys()
    assert {len(each.strip(b"\0")) == 0 for each in values} == {True, False}


def test_a_clean_log_has_the_messages_in_order() -> None:
    found = list(records(Log("p.t", 50), 1, datetime.now(UTC)))

    assert [moment for moment, _ in found] == sorted(moment for moment, _ in found)
    assert len({json.loads(value)["data"] for _, value in found}) == 50


def write(book: Path, *calls: tuple[str, str, list[str]]) -> Path:
    book.write_text("".join(f"{json.dumps([kind, 0.25, said, texts])}\n" for kind, said, texts in calls))
    return book


def test_books_that_agree_have_nothing_lost_repeated_or_refused(tmp_path: Path) -> None:
    publisher = write(tmp_path / "p.book", (PUBLISH, OK, ["a", "b"]))
    consumer = write(
        tmp_path / "c.book", (PULL, OK, ["a"]), (PULL, OK, ["a", "b"]), (ACKNOWLEDGE, OK, ["a", "b"]), (PULL, OK, [])
    )

    assert balance([publisher], [consumer], {}) == (2, [], [], [], 0.25)


def test_what_did_not_come_came_again_or_was_refused_is_named(tmp_path: Path) -> None:
    publisher = write(tmp_path / "p.book", (PUBLISH, OK, ["a", "b"]), (PUBLISH, "503 gone", ["c"]))
    consumer = write(tmp_path / "c.book", (PULL, OK, ["a"]), (ACKNOWLEDGE, OK, ["a"]), (PULL, OK, ["a"]))

    found = balance([publisher], [consumer], {"d": 2, "e": 1})

    assert (found.lost, found.repeated, found.refused) == (["b"], ["a", "d"], ["p: publish: 503 gone"])
