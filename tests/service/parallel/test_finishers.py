"""Which id finished a message: with exactly-once delivery no other one may say so after it."""

from pyroaring import BitMap64

from ams.core.ack_ids import AckId, HandOutId
from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.finishers import MOST_NOTED, Finishers
from ams.storage.cursors.acks import Progress
from tests.service.parallel.backlogs import DEADLINE, GRACE, RULES, exactly_once, give, store


def test_exactly_once_an_id_is_late_whose_message_another_one_finished() -> None:
    backlog = exactly_once()
    first = give(backlog, 0, 0)
    store(backlog, backlog.expire(Milliseconds(DEADLINE + 200)), DEADLINE + 200)
    now = DEADLINE + 600
    backlog.expire(Milliseconds(now))
    second = give(backlog, now, *backlog.again(1))
    assert store(backlog, backlog.acknowledge(second, Milliseconds(now)), now).done == [0]

    (text,) = first
    assert backlog.acknowledge(first, Milliseconds(now)).late == [AckId(Offset(0), text)]
    assert backlog.extend(first, Milliseconds(now + 1), Milliseconds(now)) == [AckId(Offset(0), text)]
    assert not backlog.acknowledge(second, Milliseconds(now + 10 * DEADLINE)).late, "its own acknowledgement again"


def test_otherwise_an_id_of_a_message_that_is_done_is_good_whoever_finished_it() -> None:
    backlog = exactly_once()
    backlog.go_by(RULES)
    first = give(backlog, 0, 0)
    store(backlog, backlog.nack(first, Milliseconds(1), Milliseconds(0)), 1)
    store(backlog, backlog.acknowledge(give(backlog, 1, *backlog.again(1)), Milliseconds(1)), 1)

    assert not backlog.acknowledge(first, Milliseconds(1)).late


def test_what_the_dead_letter_topic_has_was_finished_by_nobody() -> None:
    backlog = exactly_once()
    backlog.go_by(backlog.failures.rules._replace(most_attempts=1))
    ids = give(backlog, 0, 0)
    store(backlog, backlog.nack(ids, Milliseconds(1)), 1)
    store(backlog, backlog.put_aside(backlog.failures.dead.pop()), 1)

    assert len(backlog.acknowledge(ids, Milliseconds(1)).late) == 1


def test_what_was_finished_before_exactly_once_delivery_began_is_known_to_nobody() -> None:
    backlog = exactly_once()
    backlog.go_by(RULES)
    ids = give(backlog, 0, 0)
    store(backlog, backlog.acknowledge(ids, Milliseconds(1)), 1)
    backlog.go_by(RULES._replace(exactly_once=True))
    later = give(backlog, 1, 1)
    store(backlog, backlog.acknowledge(later, Milliseconds(1)), 1)

    assert len(backlog.acknowledge(ids, Milliseconds(1)).late) == 1
    assert not backlog.acknowledge(later, Milliseconds(1)).late


def test_what_was_finished_before_a_restart_is_believed_while_leases_of_then_may_last() -> None:
    progress = Progress(Offset(2), 1, 3, BitMap64([3]), {}, None)
    rules = RULES._replace(exactly_once=True)
    backlog = Backlog(progress, "abcdef", rules, end=Offset(4), grace_until=Milliseconds(GRACE))
    ids = {"1.1.2.7.abcdef": [Offset(1), Offset(3)]}

    assert not backlog.acknowledge(ids, Milliseconds(GRACE)).late
    assert len(backlog.acknowledge(ids, Milliseconds(GRACE + 1)).late) == 2


def test_only_the_newer_finishers_are_remembered_and_older_ids_are_refused_then() -> None:
    finishers = Finishers(Progress(Offset(0), 1, 3, BitMap64(), {}, None), Milliseconds(0))
    half = MOST_NOTED // 2

    def is_by(offset: int, number: int, attempt: int = 1) -> bool:
        given = HandOutId(attempt, 1, 3, number, "abcdef")
        return finishers.is_by(AckId(Offset(offset), given.text), given, Milliseconds(0))

    def note(begin: int, number: int) -> None:
        text = HandOutId(2, 1, 3, number, "abcdef").text
        finishers.note(map(Offset, range(begin, begin + half)), text, number)

    note(0, 10)
    assert is_by(0, 10, attempt=2)
    assert not is_by(0, 5)
    note(half, 20)
    assert not is_by(0, 5), "it is not known any more"
    assert is_by(half, 20, attempt=2)
    assert is_by(10 * half, 11), "given and finished once"
