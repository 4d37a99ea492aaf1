"""The demo of workers: no job is lost through two kills, and the broken one is put aside."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from demo.books import done_in
from demo.work.books import balance
from tests.support.documents import environment

LAST_LINE = re.compile(
    r"work-demo: published (\d+) worked (\d+) lost 0 dead 1 repeated \d+ seconds \d+\.\d\n", re.ASCII
)
WORKED = re.compile(r"^  (library|ams-work)-\d +(\d+)(  \(killed\))?$", re.MULTILINE)


def test_books_say_what_is_lost_dead_and_repeated(tmp_path: Path) -> None:
    one, two = tmp_path / "one.book", tmp_path / "two.book"
    one.write_text("job 0\njob 1\njo")
    two.write_text("job 1\n")

    assert done_in(one) == ["job 0", "job 1"]
    found = balance(["job 0", "job 1", "job 2", "job 3 is broken"], [one, two, tmp_path / "none"], ["job 3 is broken"])

    assert found == (4, 2, 1, 1, 1)
    assert not found.is_right
    assert found._replace(lost=0).is_right
    assert not found._replace(lost=0, dead=0).is_right


@pytest.mark.acceptance
@pytest.mark.long
def test_two_programs_share_a_backlog_and_nothing_is_lost_when_two_workers_are_killed(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "demo.work", "--folder", tmp_path / "demo", "--messages", "1500"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    last = LAST_LINE.search(ran.stdout)
    assert last
    assert ran.stdout.endswith(last[0])
    assert (last[1], last[2]) == ("1500", "1499")
    workers = WORKED.findall(ran.stdout)
    assert [name for name, _, killed in workers if killed] == ["ams-work", "library"]
    for program in ("library", "ams-work"):
        assert sum(int(done) for name, done, _ in workers if name == program) > 0
