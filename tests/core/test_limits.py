import contextlib
import doctest
from collections.abc import Sequence
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ams.core.clock
from ams.core.cache import ExpiringCache, LruCache
from ams.core.clock import Milliseconds, publish_time, span_text
from ams.core.errors import InvalidInput, Overloaded, QuotaExceeded, RateLimited
from ams.core.fair_share import FairShare
from ams.core.quotas import MAX_LIMIT, QUOTAS, Limits, Quotas, changed_limits
from ams.core.rate import MAX_ADDRESSES, LoginLimit
from ams.core.retention_clock import RetentionClock
from ams.core.settings import Settings
from tests.support.clock import ManualClock

RULES = Quotas({"topics": 5, "schemas": 0})


def test_every_quota_has_a_setting() -> None:
    assert set(QUOTAS.values()) <= {each.name for each in Settings.fields()}


@pytest.mark.parametrize(("own", "name", "limit"), [
    ({}, "topics", 5), ({"topics": 9}, "topics", 9), ({"topics": 0}, "topics", 0), ({}, "schemas", 0),
    ({"topics": 9}, "members", 0),
])  # fmt: skip
def test_an_own_value_replaces_the_default(own: Limits, name: str, limit: int) -> None:
    assert RULES.limit(own, name) == limit
    RULES.check(own, name, limit)
    RULES.check(own, name, 0)
    if limit:
        with pytest.raises(QuotaExceeded, match=f"Quota {name} of the project is exceeded: its limit is {limit}"):
            RULES.check(own, name, limit + 1)
    else:
        RULES.check(own, name, MAX_LIMIT)


def test_changes_set_take_away_and_leave() -> None:
    own = {"topics": 9, "members": 3}
    assert changed_limits(own, {"topics": None, "schemas": 0}) == {"schemas": 0, "members": 3}
    assert own == {"topics": 9, "members": 3}


@pytest.mark.parametrize(("name", "value"), [("pages", 1), ("pages", None), ("topics", -1), ("topics", MAX_LIMIT + 1)])
def test_what_is_no_quota_changes_nothing(name: str, value: int | None) -> None:
    with pytest.raises(
        InvalidInput, match=r"no quota 'pages': there are storedBytes, |The quota topics is a whole number"
    ):
        changed_limits({}, {name: value})


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
    assert share.held_by("one") == share.steady_share("one") == (capacity + 1) // 2
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
    with contextlib.suppress(KeyError), share.hold_slot("one", "no room"):
        with pytest.raises(Overloaded, match="no room"), share.hold_slot("one", "no room"):
            pass
        raise KeyError
    assert share.used == 0


MINUTE = 60_000


def fail_logins(attempts: LoginLimit, address: str, times: int) -> None:
    for _ in range(times):
        attempts.check(address)
        attempts.count_failure(address)


@pytest.mark.parametrize(("failed", "refused", "others"), [
    (["192.0.2.1"] * 3, "192.0.2.1", ["192.0.2.2"]),
    ([f"2001:db8:0:1::{host}" for host in "123"], "2001:db8:0:1:ffff::1", ["2001:db8:0:2::1", "fe80::1%eth0", "a:b"]),
], ids=["an address", "addresses of one network of IPv6"])  # fmt: skip
def test_who_failed_too_often_is_refused_and_others_are_not(failed: list[str], refused: str, others: list[str]) -> None:
    attempts = LoginLimit(3, ManualClock())
    for address in failed:
        fail_logins(attempts, address, 1)

    with pytest.raises(RateLimited, match="Too many failed logins"):
        attempts.check(refused)
    for address in others:
        attempts.check(address)


def test_what_was_used_up_comes_back_within_a_minute() -> None:
    clock = ManualClock()
    attempts = LoginLimit(3, clock)
    fail_logins(attempts, "192.0.2.1", 3)

    clock.advance(MINUTE // 3)
    attempts.check("192.0.2.1")
    clock.advance(10 * MINUTE)
    fail_logins(attempts, "192.0.2.1", 3)
    with pytest.raises(RateLimited):
        attempts.check("192.0.2.1")


def test_without_a_limit_failures_are_counted_only() -> None:
    attempts = LoginLimit(0, ManualClock())
    fail_logins(attempts, "192.0.2.1", 1000)
    assert attempts.failures == 1000


def test_addresses_without_end_take_no_memory_without_end() -> None:
    """The oldest entry is dropped, and the newest is kept."""
    attempts = LoginLimit(3, ManualClock())
    fail_logins(attempts, "the oldest", 3)
    for number in range(MAX_ADDRESSES):
        attempts.count_failure(str(number))
    fail_logins(attempts, "the newest", 3)

    attempts.check("the oldest")
    with pytest.raises(RateLimited):
        attempts.check("the newest")


KEYS = st.integers(0, 6)
STEPS = st.lists(st.one_of(
    st.tuples(st.just("put"), KEYS, st.integers(1, 5)),
    st.tuples(st.sampled_from(["get", "peek", "discard"]), KEYS, st.just(0)),
    st.tuples(st.sampled_from(["drop even", "clear"]), st.just(0), st.just(0)),
), max_size=60)  # fmt: skip


class NaiveCache:
    """A list of entries, least recently used first."""

    def __init__(self, size: int, weighed: bool) -> None:
        self.entries: list[tuple[int, int]] = []
        self._size = size
        self._weighed = weighed

    def take(self, step: str, key: int, value: int) -> int | None:
        found = next((entry for entry in self.entries if entry[0] == key), None)
        if step in ("get", "put", "discard") and found:
            self.entries.remove(found)
        if step == "get" and found:
            self.entries.append(found)
        if step == "put":
            self.entries.append((key, value))
            while self._weight() > self._size and len(self.entries) > 1:
                del self.entries[0]
        if step == "drop even":
            self.entries = [entry for entry in self.entries if entry[1] % 2]
        if step == "clear":
            self.entries = []
        return found[1] if found and step in ("get", "peek") else None

    def _weight(self) -> int:
        return sum(value if self._weighed else 1 for _, value in self.entries)


def take(cache: LruCache[int, int], step: str, key: int, value: int) -> int | None:
    if step == "get":
        return cache.get(key)
    if step == "peek":
        return cache.peek(key)
    if step == "put":
        cache.put(key, value)
    elif step == "discard":
        cache.discard(key)
    elif step == "drop even":
        cache.discard_where(lambda _key, each: each % 2 == 0)
    else:
        cache.clear()
    return None


@given(steps=STEPS, size=st.integers(1, 9), weighed=st.booleans())
def test_it_holds_what_a_naive_list_would(steps: Sequence[tuple[str, int, int]], size: int, weighed: bool) -> None:
    cache: LruCache[int, int] = LruCache(size, (lambda value: value) if weighed else None)
    naive = NaiveCache(size, weighed)

    for step in steps:
        assert take(cache, *step) == naive.take(*step)
        assert len(cache) == len(naive.entries)
        assert {key: cache.peek(key) for key in range(7) if cache.peek(key)} == dict(naive.entries)


def test_an_entry_ends_when_its_time_is_over() -> None:
    clock = ManualClock()
    cache: ExpiringCache[str, int] = ExpiringCache(10, 1_000, clock.monotonic)
    cache.put("a", 1)
    clock.advance(999)
    assert cache.get("a") == 1  # a use does not make it longer

    clock.advance(1)

    assert cache.get("a") is None
    assert len(cache) == 0
    cache.put("a", 1)
    clock.advance(600)
    cache.put("a", 2)  # begins anew
    clock.advance(600)
    assert cache.get("a") == 2


def test_entries_that_end_are_bounded_and_can_be_cleared() -> None:
    cache: ExpiringCache[str, int] = ExpiringCache(2, 1_000, ManualClock().monotonic)
    for key in ("a", "b", "c"):
        cache.put(key, 1)
    assert [cache.get(key) for key in ("a", "b", "c")] == [None, 1, 1]

    cache.clear()

    assert len(cache) == 0


def test_the_examples_of_the_module_hold() -> None:
    assert doctest.testmod(ams.core.clock).failed == 0


@given(st.integers(0, 4_000_000_000_000))
def test_a_publish_time_names_its_millisecond_without_trailing_zeros(moment: int) -> None:
    text = publish_time(Milliseconds(moment))
    assert round(datetime.fromisoformat(text).timestamp() * 1000) == moment
    assert not text.removesuffix("Z").rpartition(".")[2].endswith("0") or "." not in text


HOUR = 3_600_000


@pytest.mark.parametrize(("step", "followed"), [
    (-90 * 24 * HOUR, True), (HOUR, True), (HOUR + 1, False), (8 * 24 * HOUR, False),
], ids=["back", "an hour ahead", "more than an hour ahead", "eight days ahead"])  # fmt: skip
def test_retention_follows_a_step_ahead_only_when_it_has_lasted_a_day(step: int, followed: bool) -> None:
    clock = ManualClock()
    retention = RetentionClock(clock)
    clock.advance(5 * HOUR)
    before = retention.wall()
    assert before == clock.wall()
    clock.step(step)
    assert retention.wall() == (clock.wall() if followed else before)
    assert retention.leap == (0 if followed else step)
    clock.advance(24 * HOUR - 1)
    assert retention.wall() == (clock.wall() if followed else before + 24 * HOUR - 1)
    clock.advance(1)
    assert retention.wall() == clock.wall()
    assert retention.leap == 0


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(0, "0s"), (59_900, "59.9s"), (60_000, "1m"), (5_400_000, "1.5h"), (259_200_000, "3d")]
)
def test_spans_are_written_in_their_largest_unit(milliseconds: int, text: str) -> None:
    assert span_text(Milliseconds(milliseconds)) == text
