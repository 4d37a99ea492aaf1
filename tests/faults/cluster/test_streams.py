"""What is known of messages that come to Google's clients while something of a cluster is broken."""

from tests.faults.cluster.course import Course
from tests.faults.cluster.streams import moment_in
from tests.faults.parallel.observed import ON_ITS_WAY


def test_calls_may_fail_from_when_the_fault_came() -> None:
    course = Course("topic")

    assert (moment_in(course).is_up, moment_in(course).deaths) == (True, 0)
    course.begin()
    assert (moment_in(course).is_up, moment_in(course).deaths) == (False, 1)


def test_a_message_was_given_just_now_but_what_was_held_up_when_the_fault_came() -> None:
    course = Course("topic")
    course.begin()
    moment = moment_in(course)
    assert moment.since == moment.time - ON_ITS_WAY

    course.release()
    assert moment_in(course).since == course.began - ON_ITS_WAY
