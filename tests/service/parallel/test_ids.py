"""Which ids count: those of this run, and what ids of the run before are worth after a restart."""

import pytest

from ams.core.ack_ids import AckId
from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.core.names import Offset
from ams.service.parallel.backlog import SOMEBODY
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
    store(backlog, backlog.nack(first, Milliseconds(1), Milliseconds(0)), 1)
    second = give(backlog, 1, *backlog.again(1))
    storing = backlog.acknowledge(second, Milliseconds(1))

    assert backlog.acknowledge(second, Milliseconds(1)).unsure == second
    assert len(backlog.acknowledge(first, Milliseconds(1)).late) == 1
    backlog.not_stored(storing)
    assert backlog.acknowledge(second, Milliseconds(1)).done == [0]


def test_an_id_that_an_owner_gave_of_a_message_published_since_it_was_overtaken_is_late() -> None:
    backlog = after_a_restart()
    given = {"1.1.2.9.abcdef": [Offset(3), Offset(4), Offset(7)]}
    with pytest.raises(InvalidInput, match="Invalid ack id"):
        backlog.acknowledge(given, Milliseconds(1))
    assert backlog.before.grow(Offset(8))
    assert not backlog.before.grow(Offset(8))
    settling = backlog.acknowledge(given, Milliseconds(1))

    assert settling.done == [3]
    assert [each.offset for each in settling.late] == [4, 7]
    with pytest.raises(InvalidInput, match="Invalid ack id"):
        backlog.acknowledge({"1.1.3.0.abcdef": [Offset(4)]}, Milliseconds(1))


def test_ids_of_the_run_before_the_last_one_are_late() -> None:
    backlog = after_a_restart()
    old = "1.1.1.1.abcdef"
    for settled in (backlog.acknowledge, backlog.nack):
        assert settled(ids_of(old, 0, 3), NOW).late == [AckId(Offset(0), old), AckId(Offset(3), old)]
    assert len(backlog.release(ids_of(old, 0), NOW)) == 1
    assert len(backlog.extend(ids_of(old, 0), Milliseconds(GRACE), NOW)) == 1

    assert looked_at(backlog) == [0, 1, 2, 3]


def test_a_message_that_two_ids_name_is_acknowledged_once() -> None:
    backlog = after_a_restart()
    settling = backlog.acknowledge({**ids_of(X, 0, 1, 3), **ids_of(Y, 0)}, NOW)
    backlog.stored(settling, NOW)

    assert settling.done == [0, 1, 3]
    assert settling.late == [AckId(Offset(0), Y)]
    assert backlog.floor == 2


def test_an_id_counts_no_more_once_the_message_was_given_and_released() -> None:
    backlog = after_a_restart()
    text = backlog.give([Offset(0)], 1, 10, Milliseconds(1000), "somebody")
    backlog.done.scanned(Offset(1))
    backlog.release({text: [Offset(0)]}, NOW)

    assert backlog.acknowledge(ids_of(X, 0), NOW).late
    assert backlog.again(1) == [0]


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


def test_a_lease_that_was_extended_ends_as_any_other() -> None:
    backlog = after_a_restart()
    backlog.extend(ids_of(X, 1), Milliseconds(500), NOW)
    backlog.extend(ids_of(X, 1), Milliseconds(1000), NOW)
    assert looked_at(backlog) == [0, 2, 3]
    settling = backlog.expire(Milliseconds(1200))
    assert settling.failures == {1: 1}
    backlog.stored(settling, Milliseconds(1200))

    assert len(backlog.acknowledge(ids_of(X, 1), Milliseconds(1200)).late) == 1
    backlog.expire(Milliseconds(1400))
    assert backlog.again(4) == [1]


def test_what_is_withheld_and_extended_is_given_to_nobody_before_its_lease_ends() -> None:
    backlog = after_a_restart()
    backlog.before.withhold(Offset(4), Milliseconds(GRACE))
    assert looked_at(backlog) == []
    backlog.extend(ids_of(X, 2), Milliseconds(10 * GRACE), NOW)
    assert backlog.expire(Milliseconds(2 * GRACE)).is_empty

    assert backlog.again(4) == [0, 1, 3]


def test_a_lease_goes_on_when_what_its_id_of_before_settles_cannot_be_stored() -> None:
    backlog = after_a_restart()
    backlog.before.withhold(Offset(4), Milliseconds(GRACE))
    looked_at(backlog)
    backlog.not_stored(backlog.acknowledge(ids_of(X, 0), NOW))

    assert not backlog.is_again_ready
    assert backlog.leases.holder_of(Offset(0)) == SOMEBODY
    assert backlog.acknowledge(ids_of(X, 0), Milliseconds(GRACE)).done == [0]


def test_the_key_of_a_message_on_lease_is_under_way_when_it_is_looked_at() -> None:
    backlog = after_a_restart()
    backlog.extend(ids_of(X, 0), Milliseconds(GRACE), NOW)
    assert looked_at(backlog, "key") == []
    assert backlog.keys.blocked == 3
    backlog.stored(backlog.acknowledge(ids_of(X, 0), NOW), NOW)

    assert backlog.again(4) == [1]


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_nack_is_a_failure_that_is_stored_and_waits(is_seen: bool) -> None:
    backlog = after_a_restart()
    if is_seen:
        backlog.before.withhold(Offset(4), Milliseconds(GRACE))
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


def test_what_a_nack_lets_come_at_once_is_given_once() -> None:
    backlog = after_a_restart()
    backlog.stored(backlog.nack(ids_of(X, 1), NOW, Milliseconds(0)), NOW)

    assert not backlog.is_again_ready
    assert looked_at(backlog) == [0, 1, 2, 3]


def test_what_is_nacked_while_it_waits_to_be_given_comes_after_its_delay() -> None:
    backlog = after_a_restart()
    backlog.give_back(looked_at(backlog))  # as its consumer could not get it
    backlog.stored(backlog.nack(ids_of(X, 1), NOW, Milliseconds(500)), NOW)

    assert backlog.taken_of([Offset(0), Offset(1)]) == {1}
    assert backlog.again(4) == [0, 2, 3]


def test_a_nack_of_the_last_attempt_puts_a_message_aside_once() -> None:
    backlog = after_a_restart(RULES._replace(most_attempts=1))
    backlog.stored(backlog.nack(ids_of(X, 1), NOW), NOW)
    assert backlog.failures.dead == []
    assert looked_at(backlog) == [0, 2, 3]

    assert backlog.failures.dead == [1]


def test_what_is_given_back_unused_comes_at_once_also_before_leases_of_then_have_ended() -> None:
    backlog = after_a_restart()
    backlog.before.withhold(Offset(4), Milliseconds(GRACE))
    looked_at(backlog)
    assert not backlog.release(ids_of(X, 1), NOW)

    assert backlog.again(4) == [1]
    assert len(backlog.acknowledge(ids_of(X, 1), NOW).late) == 1


def test_exactly_once_the_id_of_before_that_finished_a_message_may_say_so_again() -> None:
    backlog = after_a_restart(RULES._replace(exactly_once=True))
    backlog.stored(backlog.acknowledge(ids_of(X, 1), NOW), NOW)

    assert not backlog.acknowledge(ids_of(X, 1), NOW).late
    assert len(backlog.acknowledge(ids_of(Y, 1), NOW).late) == 1


def test_exactly_once_a_nack_that_was_done_may_say_so_again_and_counts_once() -> None:
    backlog = exactly_once()
    first = give(backlog, 0, 0)
    storing = backlog.nack(first, NOW, Milliseconds(0))
    assert backlog.nack(first, NOW).unsure == first
    store(backlog, storing, NOW)
    second = give(backlog, NOW, *backlog.again(1))

    again = backlog.nack(first, NOW)
    assert (again.is_empty, again.late, again.unsure) == (True, [], {})
    assert backlog.failures.of(Offset(0)) == 1
    assert len(backlog.extend(first, Milliseconds(9), NOW)) == len(backlog.acknowledge(first, NOW).late) == 1
    store(backlog, backlog.nack(second, NOW, Milliseconds(0)), NOW)
    assert len(backlog.nack(first, NOW).late) == 1, "another id gave it back since"


def test_a_nack_that_could_not_be_stored_is_done_when_it_comes_again() -> None:
    backlog = exactly_once()
    ids = give(backlog, 0, 0)
    backlog.not_stored(backlog.nack(ids, NOW))

    assert backlog.nack(ids, NOW).failures == {0: 1}


def test_exactly_once_what_is_done_is_neither_extended_nor_given_back() -> None:
    backlog = exactly_once()
    ids = give(backlog, 0, 0)
    store(backlog, backlog.acknowledge(ids, NOW), NOW)

    assert len(backlog.extend(ids, Milliseconds(9), NOW)) == len(backlog.nack(ids, NOW).late) == 1
    backlog.go_by(RULES)
    assert backlog.extend(ids, Milliseconds(9), NOW) == backlog.nack(ids, NOW).late == []
