from demo.ledger import Ledger, Message


def message(data: bytes = b"soil is dry", **attributes: str) -> Message:
    return Message(attributes, data)


def ledger_of(sent: dict[str, Message], came_out: list[tuple[str, Message]]) -> Ledger:
    ledger = Ledger("readings")
    ledger.sent(list(sent), list(sent.values()))
    for message_id, each in came_out:
        ledger.came_out(message_id, each)
    return ledger


def test_what_comes_out_as_it_went_in_is_no_finding() -> None:
    ledger = ledger_of({"0": message(), "1": message(b"wet")}, [("0", message()), ("1", message(b"wet"))])

    assert ledger.findings() == []
    assert (ledger.published, ledger.received, ledger.duplicated, ledger.lost()) == (2, 2, 0, [])


def test_a_changed_byte_is_named_with_its_place() -> None:
    ledger = ledger_of({"7": message(b"abc")}, [("7", message(b"abd"))])

    assert ledger.findings() == ["readings message 7: altered, byte 2 was 0x63 and came out as 0x64"]


def test_a_cut_message_is_named() -> None:
    ledger = ledger_of({"7": message(b"abc")}, [("7", message(b"ab"))])

    assert ledger.findings() == ["readings message 7: altered, 3 bytes went in and 2 came out"]


def test_changed_attributes_are_named() -> None:
    ledger = ledger_of({"7": message(bed="roses")}, [("7", message(bed="ferns"))])

    assert ledger.findings() == ["readings message 7: altered, its attributes are not those published"]


def test_a_lost_message_is_named() -> None:
    ledger = ledger_of({"0": message(), "1": message()}, [("1", message())])

    assert ledger.lost() == ["0"]
    assert ledger.findings() == ["readings message 0: lost"]


def test_a_message_delivered_twice_is_named_and_counted_once() -> None:
    ledger = ledger_of({"0": message()}, [("0", message()), ("0", message())])

    assert (ledger.received, ledger.duplicated) == (1, 1)
    assert ledger.findings() == ["readings message 0: delivered more than once"]


def test_a_message_nobody_published_is_named() -> None:
    assert ledger_of({}, [("0", message())]).findings() == ["readings message 0: came out, but was never published"]


def test_an_id_given_twice_is_named() -> None:
    ledger = ledger_of({"0": message()}, [("0", message())])
    ledger.sent(["0"], [message()])

    assert ledger.findings() == ["readings message 0: this id was given twice"]


def test_too_few_ids_in_an_answer_are_named() -> None:
    ledger = Ledger("readings")
    ledger.sent([], [message()])

    assert ledger.findings() == ["readings: 1 messages were answered with 0 ids"]
