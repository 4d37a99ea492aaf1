"""A fair share of a capacity: a holder may take as much as it leaves free."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import Overloaded
from ams.core.fair_share import FairShare


@given(st.integers(1, 30), st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=60))
def test_a_holder_may_take_what_it_leaves_free_and_gives_it_back(capacity: int, takes: list[tuple[int, int]]) -> None:
    share, model = FairShare[int](capacity), dict.fromkeys(range(6), 0)
    for holder, amount in takes:
        fits = model[holder] + amount <= capacity - sum(model.values())
        assert share.try_take(holder, amount) == fits
        model[holder] += amount * fits
        assert share.used == sum(model.values()) <= capacity
        assert share.held_by(holder) == model[holder]
    for holder, amount in model.items():
        share.give_back(holder, amount)
    assert (share.used, len(share)) == (0, 0)


@given(st.integers(1, 30))
def test_one_alone_has_half_each_of_two_a_third(capacity: int) -> None:
    share = FairShare[str](capacity)
    while share.try_take("one"):
        pass
    assert share.held_by("one") == (capacity + 1) // 2 if capacity > 1 else 1
    assert share.most_of("one") == capacity // 2
    two = FairShare[str](capacity)
    while two.try_take("a") | two.try_take("b"):
        pass
    assert abs(two.held_by("a") - two.held_by("b")) <= 1
    assert abs(two.used - 2 * capacity / 3) <= 1


def test_what_belongs_to_two_holders_counts_once_and_for_each_of_them() -> None:
    share = FairShare[str](10)
    share.add(4, "project", "user")
    assert (share.used, share.held_by("project"), share.held_by("user")) == (4, 4, 4)
    assert (share.room("project"), share.room("project", "other"), share.room("other")) == (2, 2, 6)
    share.add(1, "same", "same")
    assert share.held_by("same") == 1
    assert share.largest_holder() in {"project", "user"}


def test_a_block_holds_one_and_gives_it_back() -> None:
    share = FairShare[str](2)
    with contextlib.suppress(KeyError), share.taken("one", "no room"):
        with pytest.raises(Overloaded, match="no room"), share.taken("one", "no room"):
            pass
        raise KeyError
    assert share.used == 0
