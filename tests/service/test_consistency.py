"""What fits together and what does not, on made-up engines' contents."""

from ams.core.names import Offset, SubscriptionId, TopicId
from ams.service.consistency import Held, Inconsistencies, inconsistencies
from ams.storage.cursors.base import Place
from ams.storage.log.base import Bounds

T1, T2, T3 = (TopicId(bytes([number]) * 16) for number in (1, 2, 3))
S1, S2, S3 = (SubscriptionId(f"sub-{number}") for number in (1, 2, 3))
NOBODY: frozenset[SubscriptionId] = frozenset()
NOTHING: frozenset[TopicId] = frozenset()
BOUNDS = {T1: Bounds(Offset(2), Offset(5)), T2: Bounds(Offset(0), Offset(0))}
WELL = Held(
    frozenset({T1, T2}), frozenset({S1, S2}), {S1: Place(T1, Offset(5)), S2: Place(T3, Offset(9))}, frozenset({T1, T2}),
    BOUNDS,
)  # fmt: skip
NONE = Inconsistencies(NOTHING, NOTHING, NOBODY, NOBODY, NOBODY)


def test_what_fits_is_not_told_nor_is_a_cursor_on_a_topic_that_is_gone() -> None:
    assert inconsistencies(WELL) == NONE


def test_each_side_is_missed_by_the_other() -> None:
    held = WELL._replace(
        topics=frozenset({T1, T3}),
        subscriptions=frozenset({S1, S3}),
        cursors={S1: Place(T1, Offset(6)), S2: Place(T1, Offset(6))},
    )

    assert inconsistencies(held) == Inconsistencies(
        frozenset({T3}), frozenset({T2}), frozenset({S3}), frozenset({S2}), frozenset({S1})
    )


def test_what_could_not_be_asked_fits() -> None:
    for engine in ({"topics": None, "subscriptions": None}, {"logs": None, "bounds": None}, {"cursors": None}):
        held = Held(frozenset({T1}), frozenset({S1}), {S1: Place(T1, Offset(0))}, frozenset({T1}), BOUNDS)

        assert inconsistencies(held._replace(**engine)) == NONE


def test_only_what_both_looks_found_counts() -> None:
    first = Inconsistencies(frozenset({T1, T2}), frozenset({T3}), frozenset({S1}), NOBODY, frozenset({S2, S3}))
    second = Inconsistencies(frozenset({T2, T3}), NOTHING, frozenset({S1}), frozenset({S2}), frozenset({S3}))

    assert first.both(second) == Inconsistencies(frozenset({T2}), NOTHING, frozenset({S1}), NOBODY, frozenset({S3}))
