from pathlib import Path

import pytest

from demo.traffic import Ledger, Message
from demo.workers import Balance, balance_jobs


def message(data: bytes = b"soil is dry", **attributes: str) -> Message:
    return Message(attributes, data)


@pytest.mark.parametrize(("sent", "came_out", "findings"), [
    (["0", "1"], [("0", message()), ("1", message())], []),
    (["0"], [("0", message(b"soil is drx"))], [" message 0: altered, byte 10 was 0x79 and came out as 0x78"]),
    (["0"], [("0", message(b"soil is dr"))], [" message 0: altered, 11 bytes went in and 10 came out"]),
    (["0"], [("0", message(bed="ferns"))], [" message 0: altered, its attributes are not those published"]),
    (["0", "1"], [("1", message())], [" message 0: lost"]),
    (["0"], [("0", message())] * 2, [" message 0: delivered more than once"]),
    ([], [("0", message())], [" message 0: came out, but was never published"]),
])  # fmt: skip
def test_a_ledger_names_each_fault(sent: list[str], came_out: list[tuple[str, Message]], findings: list[str]) -> None:
    ledger = Ledger("readings")
    ledger.sent(sent, [message() for _ in sent])
    for message_id, each in came_out:
        ledger.came_out(message_id, each)

    assert ledger.findings() == [f"readings{each}" for each in findings]


def test_the_books_of_workers_are_balanced(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("job 0\njob 1\njo")
    two.write_text("job 1\n")

    found = balance_jobs(["job 0", "job 1", "job 2", "job 3"], [one, two, tmp_path / "none"], ["job 3"])

    assert found == Balance(published=4, received=2, lost=1, repeated=1, dead=1)
    assert not found.is_right
