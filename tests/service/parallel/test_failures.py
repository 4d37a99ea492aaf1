"""Messages that have failed as often as they may: they are put aside, or come again if they cannot be."""

from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.service.parallel.backlog import KEPT
from tests.service.parallel.backlogs import RULES, exactly_once, give, store


def test_a_message_that_cannot_be_put_aside_is_given_again_after_a_while() -> None:
    backlog = exactly_once()
    backlog.go_by(RULES._replace(most_attempts=1))
    store(backlog, backlog.nack(give(backlog, 0, 0), Milliseconds(1)), 1)
    backlog.keep(backlog.failures.dead.pop(), Milliseconds(1))

    backlog.expire(Milliseconds(KEPT))
    assert not backlog.again(1)
    backlog.expire(Milliseconds(KEPT + 100))
    assert backlog.again(1) == [0]
    assert backlog.failures.attempt_of(Offset(0)) == 2


def test_a_message_in_the_dead_letter_topic_is_given_to_nobody_when_that_could_not_be_stored() -> None:
    backlog = exactly_once()
    backlog.go_by(RULES._replace(most_attempts=1))
    store(backlog, backlog.nack(give(backlog, 0, 0), Milliseconds(1)), 1)
    offset = backlog.failures.dead.pop()
    backlog.not_stored(backlog.put_aside(offset))
    backlog.keep(offset, Milliseconds(1))
    backlog.expire(Milliseconds(KEPT + 100))

    assert not backlog.is_again_ready
    assert backlog.failures.dead == [0]
    store(backlog, backlog.put_aside(backlog.failures.dead.pop()), KEPT)
    assert backlog.floor == 1
