"""The laws of deliveries accuse histories with planted faults, and no others."""

import json

import pytest

from simulation.histories.attempts import Held, Outcome, Publish
from simulation.histories.payload import message
from tests.faults.push.laws import POISON, Delivery, Story, count_repeats, delivery, violations

TOPIC = {0: "a", 1: "b", 2: f"{POISON}-1", 3: "c", 4: "d"}


def make_delivery(*runs: tuple[int, int], every: float = 1.0) -> list[Delivery]:
    return [
        Delivery("s", tuple(Held(id_, TOPIC[id_]) for id_ in range(first, last + 1)), number * every)
        for number, (first, last) in enumerate(runs)
    ]


def story(*runs: tuple[int, int], breaks: int = 0, dead: tuple[int, ...] = (2,), every: float = 1.0) -> Story:
    return Story(
        "s", make_delivery(*runs, every=every), TOPIC, breaks, takes=0.5, dead=dead, publishes=[make_publish(TOPIC)]
    )


def make_publish(topic: dict[int, str]) -> Publish:
    ids, names = tuple(topic), tuple(topic.values())
    return Publish(request="p0", started=0, ended=1, outcome=Outcome.DONE, topic="s", names=names, ids=ids)


@pytest.mark.parametrize(("runs", "breaks"), [
    (((0, 1), (2, 2), (2, 2), (3, 4)), 0),
    (((0, 4), (0, 1), (2, 4), (2, 3), (2, 2), (3, 4)), 0),  # refused as a whole, then halved
    (((0, 1), (0, 0), (1, 1), (2, 2), (3, 4)), 1),  # killed, and begun with less
    (((0, 1), (2, 2), (3, 4), (3, 4)), 1),
])  # fmt: skip
def test_a_history_that_keeps_the_laws_has_no_violations(runs: tuple[tuple[int, int], ...], breaks: int) -> None:
    assert list(violations(story(*runs, breaks=breaks))) == []


@pytest.mark.parametrize(("runs", "said"), [
    (((0, 1), (2, 2), (3, 3)), "s: 1 messages never came, the first is 4"),
    (((0, 1), (2, 2), (4, 4), (3, 3)), "s: after 2-2 came 4-4"),
    (((0, 0), (1, 1), (0, 0), (1, 1), (2, 2), (3, 4)), "s: after 1-1 came 0-0"),
    (((0, 1), (1, 1), (2, 2), (3, 4)), "s: after 0-1 came 1-1"),
    (((0, 1), (0, 1), (2, 2), (3, 4)), "s: 1 deliveries came again, with 0 kills"),
    (((0, 1), (2, 3), (4, 4)), "s: after 2-3 came 4-4"),
])  # fmt: skip
def test_a_planted_fault_is_found(runs: tuple[tuple[int, int], ...], said: str) -> None:
    assert said in list(violations(story(*runs)))


def test_deliveries_at_the_same_time_are_found() -> None:
    found = list(violations(story((0, 1), (2, 2), (3, 4), every=0.2)))

    assert found == ["s: 2-2 came while 0-1 was being answered", "s: 3-4 came while 2-2 was being answered"]


@pytest.mark.parametrize(
    ("dead", "said"),
    [((), "s: no dead letters of [2]"), ((2, 2), "s: dead letters too many, of [2]"),
     ((2, 3), "s: dead letters too many, of [3]")],
)  # fmt: skip
def test_dead_letters_are_counted(dead: tuple[int, ...], said: str) -> None:
    assert list(violations(story((0, 1), (2, 2), (3, 4), dead=dead))) == [said]


def test_a_message_that_was_altered_is_found() -> None:
    altered = message("a") | {"messageId": "0", "data": "AAAA"}
    [first] = [delivery(json.dumps({"message": altered, "subscription": "projects/P/subscriptions/s"}), 0.0)]

    found = list(violations(Story("s", [first], {0: "a"}, 0, 0.0, publishes=[make_publish({0: "a"})])))

    assert found == ["s: message 0 is 'a' and was delivered as 'a (altered)'"]


def test_a_topic_that_is_not_as_its_publishers_were_answered_is_found() -> None:
    publish = Publish(request="p1", started=0, ended=1, outcome=Outcome.DONE, topic="s", names=("a", "b"), ids=(0, 1))

    found = list(violations(Story("s", make_delivery((0, 0)), {0: "a"}, 0, 0.0, publishes=[publish])))

    assert "s: law 1: message b of request p1, acknowledged as id 1, is lost" in found


def test_what_was_refused_is_not_counted_as_repeated() -> None:
    assert count_repeats(make_delivery((0, 1), (2, 2), (2, 2), (3, 4), (3, 4))) == 1
