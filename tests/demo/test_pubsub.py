"""The demo of Google's clients: nothing is lost through two kills, keys stay in order, the broken one is put aside."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from demo.pubsub.books import balance
from demo.pubsub.site import is_broken, readings
from tests.support.documents import environment

LAST_LINE = re.compile(r"pubsub-demo: published (\d+) received (\d+) lost 0 order 0 dead 1 seconds \d+\.\d\n", re.ASCII)
RECEIVED = re.compile(r"^  (subscriber|reader)\S* +(\d+)(  \(killed\))?$", re.MULTILINE)


def test_one_of_the_texts_is_broken_and_each_begins_with_its_key() -> None:
    found = readings(1000)

    assert [text for _, text in found if is_broken(text)] == ["station-100 500 is broken"]
    assert all(text.split()[0] == key for key, text in found)
    assert len({text for _, text in found}) == 1000


def test_books_say_what_came_to_both_sides_and_in_which_order(tmp_path: Path) -> None:
    one, two, archive = tmp_path / "one.book", tmp_path / "two.book", tmp_path / "archive.book"
    one.write_text("10 a 0\n30 a 2\n40 b 3 is broken\n50 b 3 is br")
    two.write_text("20 a 1\n21 a 1\n")
    archive.write_text("1 a 0\n2 a 1\n3 a 2\n4 b 3 is broken\n")
    published = ["a 0", "a 1", "a 2", "b 3 is broken"]

    found = balance(published, [one, two], archive, ["b 3 is broken"])

    assert found == (4, 4, 0, 0, 1)
    assert found.is_right
    for field, wrong in (("received", 3), ("lost", 1), ("disorder", 1), ("dead", 0), ("dead", 2)):
        assert not found._replace(**{field: wrong}).is_right


def test_books_say_what_is_lost_on_either_side_and_what_came_after_a_later_one(tmp_path: Path) -> None:
    one, archive = tmp_path / "one.book", tmp_path / "archive.book"
    one.write_text("10 a 1\n20 a 0\n30 b 3\n")
    archive.write_text("1 a 0\n2 b 3\n3 a 1\n4 b 2\n")

    assert balance(["a 0", "a 1", "b 2", "b 3"], [one, tmp_path / "none"], archive, []) == (4, 3, 1, 2, 0)


@pytest.mark.acceptance
def test_a_short_demo_loses_nothing(tmp_path: Path) -> None:
    assert_runs(tmp_path, 2000)


@pytest.mark.acceptance
@pytest.mark.long
def test_the_whole_demo_loses_nothing(tmp_path: Path) -> None:
    assert_runs(tmp_path, 20_000)


def assert_runs(folder: Path, messages: int) -> None:
    """Run the demo, and see that it ends well and that all of its programs had something to do."""
    ran = subprocess.run(
        [sys.executable, "-m", "demo.pubsub", "--folder", folder / "demo", "--messages", str(messages)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    last = LAST_LINE.search(ran.stdout)
    assert last
    assert ran.stdout.endswith(last[0])
    assert (last[1], last[2]) == (str(messages), str(messages))
    received = RECEIVED.findall(ran.stdout)
    assert [name for name, _, _ in received] == ["subscriber"] * 4 + ["reader"]
    assert len([count for _, count, killed in received if killed and int(count) > 0]) == 2
    assert int(received[-1][1]) >= messages
