from ams.core.clock import ManualClock, Milliseconds
from ams.core.names import Offset, ProjectId, SubscriptionId, TopicId, TopicName
from ams.service.counts import Counts, Pulls
from ams.storage.log.base import Appended
from ams.storage.registry.records import Topic

NOW = Milliseconds(1_000)
TOPIC = Topic(TopicId(bytes(16)), ProjectId("p"), TopicName("t"), None, None, NOW)
SUB = SubscriptionId("s")


def appended(first: int, time: int = 0) -> Appended:
    return Appended(Offset(first), 1, Milliseconds(time))


def test_the_last_two_publishes_of_a_topic_are_kept() -> None:
    counts = Counts()
    for first in range(3):
        counts.note_publish(TOPIC, appended(first))

    assert counts.take_published() == {TOPIC.id: ("p", appended(2), appended(1))}
    assert counts.take_published() == {}


def test_a_publish_that_is_not_newer_changes_nothing() -> None:
    counts = Counts()
    for first in (5, 0, 5):
        counts.note_publish(TOPIC, appended(first))

    assert counts.take_published() == {TOPIC.id: ("p", appended(5), None)}


def test_an_attempt_keeps_what_is_known() -> None:
    counts = Counts()
    counts.note_attempt(TOPIC)
    assert counts.published == {TOPIC.id: ("p", None, None)}

    counts.note_publish(TOPIC, appended(0))
    counts.note_attempt(TOPIC)
    assert counts.published == {TOPIC.id: ("p", appended(0), None)}


def test_notes_given_back_come_before_newer_ones() -> None:
    clock = ManualClock(now=NOW)
    counts = Counts(clock)
    counts.note_publish(TOPIC, appended(0))
    counts.note_pull(SUB, 2, 8)
    published, pulled = counts.take_published(), counts.take_pulled()
    clock.advance(10)
    counts.note_publish(TOPIC, appended(1))
    counts.note_pull(SUB, 1, 4)

    counts.give_back(published, pulled)

    assert counts.published == {TOPIC.id: ("p", appended(1), None)}
    assert counts.pulled == {SUB: Pulls(3, 12, 1, Milliseconds(NOW + 10), NOW)}


def test_notes_given_back_are_there_again_when_nothing_came_since() -> None:
    counts = Counts(ManualClock(now=NOW))
    counts.note_pull(SUB, 1, 4)
    taken = counts.take_pulled()
    expected = Pulls(1, 4, 1, NOW, None)
    assert taken == {SUB: expected}

    counts.give_back({}, taken)

    assert counts.pulled == {SUB: expected}


def test_looks_that_found_nothing_wait_for_a_pull_that_does() -> None:
    counts = Counts(ManualClock(now=NOW))
    counts.note_pull(SUB)

    assert counts.take_pulled() == {}
    assert counts.pulled == {SUB: Pulls(0, 0, 0, NOW, None)}
