"""Which ids count: those of this run and of the run before, those that finished a message, and those that failed."""

import pytest
from pyroaring import BitMap64

from ams.core.ack_ids import AckId, HandOutId
from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.core.names import Offset
from ams.service.parallel import hand_out_ids
from ams.service.parallel.backlog import KEPT, Backlog
from ams.service.parallel.hand_out_ids import FinalIds, NackIds
from ams.service.parallel.message_state import Failures, Rules
from ams.storage.cursors.acks import Progress
from tests.service.parallel.backlogs import (
    GRACE,
    NOW,
    RULES,
    X,
    Y,
    after_a_restart,
    exactly_once,
    give,
    ids_of,
    looked_at,
    store,
)


def test_an_id_of_a_message_that_another_one_is_about_to_finish_waits_for_that_or_is_late() -> None:
    backlog = exactly_once()
    first = give(backlog, 0, 0)
    store(backlog, backlog.nack(first, NOW, Milliseconds(0)))
    second = give(backlog, 1, *backlog.again(1))
    storing = backlog.acknowledge(second, NOW)

    assert backlog.acknowledge(second, NOW).unsure == second
    assert len(backlog.acknowledge(first, NOW).late) == 1
    backlog.not_stored(storing)
    assert backlog.acknowledge(second, NOW).done == [0]


def test_an_id_that_an_owner_gave_of_a_message_published_since_it_was_overtaken_is_late() -> None:
    backlog = after_a_restart()
    given = {"1.1.2.9.abcdef": [Offset(3), Offset(4), Offset(7)]}
    with pytest.raises(InvalidInput, match="Invalid ack id"):
        backlog.acknowledge(given, NOW)
    assert backlog.restart_grace.grow(Offset(8))
    assert not backlog.restart_grace.grow(Offset(8))
    settling = backlog.acknowledge(given, NOW)

    assert settling.done == [3]
    assert [each.offset for each in settling.late] == [4, 7]
    with pytest.raises(InvalidInput, match="Invalid ack id"):
        backlog.acknowledge({"1.1.3.0.abcdef": [Offset(4)]}, NOW)


def test_a_lease_that_is_extended_holds_until_its_new_deadline_also_behind_the_time_for_ids_of_before() -> None:
    backlog = after_a_restart()
    until = Milliseconds(10 * GRACE)
    assert not backlog.extend(ids_of(X, 1), until, NOW, "one")
    assert not backlog.may_give_all(Offset(0), Offset(4))
    assert looked_at(backlog) == [0, 2, 3]
    assert (backlog.leases.holder_of(Offset(1)), backlog.out) == ("one", 1)

    assert backlog.expire(until).is_empty
    assert len(backlog.acknowledge(ids_of(Y, 1), until).late) == 1
    assert backlog.acknowledge(ids_of(X, 1), until).done == [1]


def test_the_key_of_a_message_on_lease_is_under_way_when_it_is_looked_at() -> None:
    backlog = after_a_restart()
    backlog.extend(ids_of(X, 0), Milliseconds(GRACE), NOW)
    assert looked_at(backlog, "key") == []
    assert backlog.keys.blocked == 3
    store(backlog, backlog.acknowledge(ids_of(X, 0), NOW))

    assert backlog.again(4) == [1]


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_nack_is_a_failure_that_is_stored_and_waits(is_seen: bool) -> None:
    backlog = after_a_restart()
    if is_seen:
        backlog.restart_grace.withhold(Offset(4), Milliseconds(GRACE))
        looked_at(backlog)
    settling = backlog.nack(ids_of(X, 1), NOW, Milliseconds(5 * GRACE))
    assert settling.failures == {1: 1}
    backlog.stored(settling, NOW)
    assert 1 not in looked_at(backlog)
    backlog.expire(Milliseconds(2 * GRACE))
    assert 1 not in backlog.again(4)

    backlog.expire(Milliseconds(5 * GRACE + 100))
    assert backlog.again(4) == [1]
    assert backlog.failures.attempt_of(Offset(1)) == 2


def test_what_is_nacked_while_it_waits_to_be_given_comes_after_its_delay() -> None:
    backlog = after_a_restart()
    backlog.give_back(looked_at(backlog))  # as its consumer could not get it
    store(backlog, backlog.nack(ids_of(X, 1), NOW, Milliseconds(500)))

    assert backlog.taken_of([Offset(0), Offset(1)]) == {1}
    assert backlog.again(4) == [0, 2, 3]


def test_a_nack_of_the_last_attempt_puts_a_message_aside_once() -> None:
    backlog = after_a_restart(RULES._replace(most_attempts=1))
    store(backlog, backlog.nack(ids_of(X, 1), NOW))
    assert backlog.failures.dead == []
    assert looked_at(backlog) == [0, 2, 3]

    assert backlog.failures.dead == [1]


def test_what_is_given_back_unused_comes_at_once_also_before_leases_of_then_have_ended() -> None:
    backlog = after_a_restart()
    backlog.restart_grace.withhold(Offset(4), Milliseconds(GRACE))
    looked_at(backlog)
    assert not backlog.release(ids_of(X, 1), NOW)

    assert backlog.again(4) == [1]
    assert len(backlog.acknowledge(ids_of(X, 1), NOW).late) == 1


def test_exactly_once_the_id_of_before_that_finished_a_message_may_say_so_again() -> None:
    backlog = after_a_restart(RULES._replace(exactly_once=True))
    store(backlog, backlog.acknowledge(ids_of(X, 1), NOW))

    assert not backlog.acknowledge(ids_of(X, 1), NOW).late
    assert len(backlog.acknowledge(ids_of(Y, 1), NOW).late) == 1


def test_exactly_once_a_nack_that_was_done_may_say_so_again_and_counts_once() -> None:
    backlog = exactly_once()
    first = give(backlog, 0, 0)
    storing = backlog.nack(first, NOW, Milliseconds(0))
    assert backlog.nack(first, NOW).unsure == first
    store(backlog, storing)
    second = give(backlog, NOW, *backlog.again(1))

    again = backlog.nack(first, NOW)
    assert (again.is_empty, again.late, again.unsure) == (True, [], {})
    assert backlog.failures.of(Offset(0)) == 1
    assert len(backlog.extend(first, Milliseconds(9), NOW)) == len(backlog.acknowledge(first, NOW).late) == 1
    store(backlog, backlog.nack(second, NOW, Milliseconds(0)))
    assert len(backlog.nack(first, NOW).late) == 1, "another id gave it back since"


def test_what_the_dead_letter_topic_has_was_finished_by_nobody() -> None:
    backlog = exactly_once()
    backlog.go_by(backlog.failures.rules._replace(most_attempts=1))
    ids = give(backlog, 0, 0)
    store(backlog, backlog.nack(ids, NOW))
    store(backlog, backlog.put_aside(backlog.failures.dead.pop()))

    assert len(backlog.acknowledge(ids, NOW).late) == 1


def test_what_was_finished_before_exactly_once_delivery_began_is_known_to_nobody() -> None:
    backlog = exactly_once()
    backlog.go_by(RULES)
    ids = give(backlog, 0, 0)
    store(backlog, backlog.acknowledge(ids, NOW))
    backlog.go_by(RULES._replace(exactly_once=True))
    later = give(backlog, 1, 1)
    store(backlog, backlog.acknowledge(later, NOW))

    assert len(backlog.acknowledge(ids, NOW).late) == 1
    assert not backlog.acknowledge(later, NOW).late


def test_what_was_finished_before_a_restart_is_believed_while_leases_of_then_may_last() -> None:
    progress = Progress(Offset(2), 1, 3, BitMap64([3]), {}, None)
    rules = RULES._replace(exactly_once=True)
    backlog = Backlog(progress, "abcdef", rules, end=Offset(4), grace_until=Milliseconds(GRACE))
    ids = {"1.1.2.7.abcdef": [Offset(1), Offset(3)]}

    assert not backlog.acknowledge(ids, Milliseconds(GRACE)).late
    assert len(backlog.acknowledge(ids, Milliseconds(GRACE + 1)).late) == 2


def test_only_the_newer_finishers_are_remembered_and_older_ids_are_refused_then() -> None:
    known = FinalIds(Progress(Offset(0), 1, 3, BitMap64(), {}, None), Milliseconds(0))
    half = hand_out_ids.MOST_NOTED // 2

    def is_by(offset: int, number: int, attempt: int = 1) -> bool:
        given = HandOutId(attempt, 1, 3, number, "abcdef")
        return known.is_by(AckId(Offset(offset), given.text), given, Milliseconds(0))

    def note(begin: int, number: int) -> None:
        text = HandOutId(2, 1, 3, number, "abcdef").text
        known.note(map(Offset, range(begin, begin + half)), text, number)

    note(0, 10)
    assert is_by(0, 10, attempt=2)
    assert not is_by(0, 5)
    note(half, 20)
    assert not is_by(0, 5), "it is not known any more"
    assert is_by(half, 20, attempt=2)
    assert is_by(10 * half, 11), "given and finished once"


def test_only_those_that_were_given_back_last_are_remembered() -> None:
    noted, most = NackIds(), hand_out_ids.MOST_NOTED
    noted.note(map(Offset, range(most)), "a")
    noted.note([Offset(0)], "b")
    noted.note([Offset(most)], "a")

    assert noted.has(AckId(Offset(0), "b"))
    assert not noted.has(AckId(Offset(0), "a"))
    assert not noted.has(AckId(Offset(1), "a"))
    assert noted.has(AckId(Offset(2), "a"))


def failed_out() -> Backlog:
    """Return a subscription whose message 0 has failed as often as it may."""
    backlog = exactly_once()
    backlog.go_by(RULES._replace(most_attempts=1))
    store(backlog, backlog.nack(give(backlog, 0, 0), NOW))
    return backlog


def test_a_message_that_cannot_be_put_aside_is_given_again_after_a_while() -> None:
    backlog = failed_out()
    backlog.keep(backlog.failures.dead.pop(), NOW)

    backlog.expire(Milliseconds(KEPT))
    assert not backlog.again(1)
    backlog.expire(Milliseconds(KEPT + 100))
    assert backlog.again(1) == [0]
    assert backlog.failures.attempt_of(Offset(0)) == 2


def test_a_message_in_the_dead_letter_topic_is_given_to_nobody_when_that_could_not_be_stored() -> None:
    backlog = failed_out()
    offset = backlog.failures.dead.pop()
    backlog.not_stored(backlog.put_aside(offset))
    backlog.keep(offset, NOW)
    backlog.expire(Milliseconds(KEPT + 100))

    assert not backlog.is_again_ready
    assert backlog.failures.dead == [0]
    store(backlog, backlog.put_aside(backlog.failures.dead.pop()), KEPT)
    assert backlog.floor == 1


def test_messages_that_retention_takes_are_forgotten_and_others_are_not() -> None:
    failures = Failures({Offset(each): each + 1 for each in range(4)}, Rules(most_attempts=9))
    for each in (1, 3):
        failures.die(Offset(each))
    for each in (0, 2):
        failures.put_aside(Offset(each))

    failures.retain(Offset(2))

    assert failures.counts == {2: 3, 3: 4}
    assert [failures.is_letter(Offset(each)) for each in range(4)] == [False, False, True, False]
    assert [failures.has(Offset(each)) for each in range(4)] == [False, False, False, True]
