import pytest

from ams.core.attempts import REMEMBERED, Attempts
from ams.core.clock import ManualClock
from ams.core.errors import RateLimited

MINUTE = 60_000


def failing(attempts: Attempts, address: str, times: int) -> None:
    for _ in range(times):
        attempts.check(address)
        attempts.failed(address)


def test_an_address_that_failed_too_often_is_refused_and_others_are_not() -> None:
    attempts = Attempts(3, ManualClock())
    failing(attempts, "192.0.2.1", 3)

    with pytest.raises(RateLimited, match="Too many failed logins"):
        attempts.check("192.0.2.1")
    attempts.check("192.0.2.2")


def test_the_addresses_of_one_network_of_ipv6_are_one() -> None:
    attempts = Attempts(3, ManualClock())
    for host in range(1, 4):
        attempts.failed(f"2001:db8:0:1::{host:x}")

    with pytest.raises(RateLimited):
        attempts.check("2001:db8:0:1:ffff::1")
    for other in ("2001:db8:0:2::1", "fe80::1%eth0", "a:b"):
        attempts.check(other)


def test_what_was_used_up_comes_back_within_a_minute() -> None:
    clock = ManualClock()
    attempts = Attempts(3, clock)
    failing(attempts, "192.0.2.1", 3)

    clock.advance(MINUTE // 3)
    attempts.check("192.0.2.1")
    clock.advance(10 * MINUTE)
    failing(attempts, "192.0.2.1", 3)
    with pytest.raises(RateLimited):
        attempts.check("192.0.2.1")


def test_without_a_limit_failures_are_counted_only() -> None:
    attempts = Attempts(0, ManualClock())
    failing(attempts, "192.0.2.1", 1000)

    assert attempts.failures == 1000


def test_addresses_without_end_take_no_memory_without_end() -> None:
    """The oldest is forgotten, and the newest is not."""
    attempts = Attempts(3, ManualClock())
    failing(attempts, "the oldest", 3)
    for number in range(REMEMBERED):
        attempts.failed(str(number))
    failing(attempts, "the newest", 3)

    attempts.check("the oldest")
    with pytest.raises(RateLimited):
        attempts.check("the newest")
