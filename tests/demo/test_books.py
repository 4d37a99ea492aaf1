"""The checks of the demos notice messages that are lost, repeated, altered or out of order."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from demo import pushing
from demo.books import Balance, balance_jobs, balance_streams, lines_of
from demo.ledger import Ledger, Message
from demo.migrate import books as migrate_books
from demo.migrate.books import ACKNOWLEDGE, OK, PUBLISH, PULL


def message(data: bytes = b"soil is dry", **attributes: str) -> Message:
    return Message(attributes, data)


def ledger_of(sent: dict[str, Message], came_out: list[tuple[str, Message]]) -> Ledger:
    ledger = Ledger("readings")
    ledger.sent(list(sent), list(sent.values()))
    for message_id, each in came_out:
        ledger.came_out(message_id, each)
    return ledger


def test_a_ledger_counts_what_comes_out_as_it_went_in() -> None:
    ledger = ledger_of({"0": message(), "1": message(b"wet")}, [("0", message()), ("1", message(b"wet"))])

    assert ledger.findings() == []
    assert (ledger.published, ledger.received, ledger.duplicated, ledger.lost()) == (2, 2, 0, [])


@pytest.mark.parametrize(
    ("sent", "came_out", "finding"),
    [
        (["0"], [("0", message(b"soil is drx"))], " message 0: altered, byte 10 was 0x79 and came out as 0x78"),
        (["0"], [("0", message(b"soil is dr"))], " message 0: altered, 11 bytes went in and 10 came out"),
        (["0"], [("0", message(bed="ferns"))], " message 0: altered, its attributes are not those published"),
        (["0", "1"], [("1", message())], " message 0: lost"),
        (["0"], [("0", message())] * 2, " message 0: delivered more than once"),
        ([], [("0", message())], " message 0: came out, but was never published"),
    ],
)
def test_a_ledger_names_each_fault(sent: list[str], came_out: list[tuple[str, Message]], finding: str) -> None:
    assert ledger_of(dict.fromkeys(sent, message()), came_out).findings() == ["readings" + finding]


def test_a_ledger_names_wrong_ids_of_an_answer() -> None:
    ledger = ledger_of({"0": message()}, [("0", message())])
    ledger.sent(["0"], [message()])
    ledger.sent([], [message()])

    said = ["readings message 0: this id was given twice", "readings: 1 messages were answered with 0 ids"]
    assert ledger.findings() == said


@pytest.mark.parametrize(("altered", "outcome"), [(False, (2, 2, 3)), (True, (2, 1, 3))])
def test_the_receiver_counts_each_message_that_came_unaltered_once(altered: bool, outcome: tuple[int, ...]) -> None:
    ledger = Ledger("readings")
    ledger.sent(["0", "1"], [Message({}, b"dry"), Message({"bed": "roses"}, b"wet")])
    wet = {"messageId": "1", "data": "d2V0", "attributes": {"bed": "ferns" if altered else "roses"}}
    with pushing.receiving(pushing.Receiver) as receiver:
        for each in ({"messageId": "0", "data": "ZHJ5"}, {"messageId": "0", "data": "ZHJ5"}, wet):
            delivered = {"message": each, "subscription": "projects/P/subscriptions/S"}
            receiver.note(json.dumps({"messages": [delivered]}).encode())
        assert pushing.outcome(ledger, receiver) == outcome


@pytest.fixture
def book(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_the_books_of_workers(book: Callable[[str, str], Path], tmp_path: Path) -> None:
    one, two = book("one", "job 0\njob 1\njo"), book("two", "job 1\n")
    jobs = ["job 0", "job 1", "job 2", "job 3 is broken"]

    found = balance_jobs(jobs, [one, two, tmp_path / "none"], ["job 3 is broken"])

    assert lines_of(one) == ["job 0", "job 1"]
    assert found == Balance(published=4, received=2, lost=1, repeated=1, dead=1)
    assert not found.is_right
    assert found._replace(lost=0).is_right
    assert not found._replace(lost=0, dead=0).is_right


def test_the_books_of_googles_clients(book: Callable[[str, str], Path], tmp_path: Path) -> None:
    one, two = book("one", "10 a 0\n30 a 2\n40 b 3 is broken\n50 b 3 is br"), book("two", "20 a 1\n21 a 1\n")
    archive = book("archive", "1 a 0\n2 a 1\n3 a 2\n4 b 3 is broken\n")

    found = balance_streams(["a 0", "a 1", "a 2", "b 3 is broken"], [one, two], archive, ["b 3 is broken"])

    assert found == Balance(published=4, received=4, lost=0, repeated=1, dead=1)
    assert found.is_right
    for field, wrong in (("lost", 1), ("disorder", 1), ("dead", 0), ("dead", 2)):
        assert not found._replace(**{field: wrong}).is_right
    one, archive = book("one", "10 a 1\n20 a 0\n30 b 3\n"), book("archive", "1 a 0\n2 b 3\n3 a 1\n4 b 2\n")
    found = balance_streams(["a 0", "a 1", "b 2", "b 3"], [one, tmp_path / "none"], archive, [])
    assert found == Balance(published=4, received=3, lost=1, repeated=0, dead=0, disorder=2)


def test_the_books_of_a_move(book: Callable[[str, str], Path]) -> None:
    def written(name: str, *calls: tuple[str, str, list[str]]) -> Path:
        return book(name, "".join(f"{json.dumps([kind, 0.25, said, texts])}\n" for kind, said, texts in calls))

    publisher = written("p.book", (PUBLISH, OK, ["a", "b"]))
    consumer = written(
        "c.book", (PULL, OK, ["a"]), (PULL, OK, ["a", "b"]), (ACKNOWLEDGE, OK, ["a", "b"]), (PULL, OK, [])
    )
    assert migrate_books.balance([publisher], [consumer], {}) == (2, [], [], [], 0.25)

    publisher = written("p.book", (PUBLISH, OK, ["a", "b"]), (PUBLISH, "503 gone", ["c"]))
    consumer = written("c.book", (PULL, OK, ["a"]), (ACKNOWLEDGE, OK, ["a"]), (PULL, OK, ["a"]))
    found = migrate_books.balance([publisher], [consumer], {"d": 2, "e": 1})
    assert (found.lost, found.repeated, found.refused) == (["b"], ["a", "d"], ["p: publish: 503 gone"])
