import pytest

from ams.core.attempts import Attempts
from ams.core.clock import ManualClock
from ams.storage.audit.event import AuditEvent
from ams.storage.audit.logins import ADDRESSES, EACH, FailedLogins


class Kept:
    """A trail that keeps events in memory."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    async def record(self, event: AuditEvent) -> None:
        self.events.append(event)


@pytest.fixture
def trail() -> Kept:
    return Kept()


@pytest.fixture
def logins(trail: Kept, clock: ManualClock) -> FailedLogins:
    return FailedLogins("ams", trail, Attempts(0, clock), clock)


async def fail(logins: FailedLogins, address: str, times: int = 1, actor: str = "") -> None:
    for _ in range(times):
        await logins.failed(address, code=401, reason="Unauthorized", resource="/users", actor=actor)


async def test_a20_failed_logins_are_counted_and_the_first_are_an_event_each(logins: FailedLogins, trail: Kept) -> None:
    await fail(logins, "192.0.2.1", 3)

    assert logins.failures == 3
    assert [(each.action, each.address, each.code, each.result, each.times) for each in trail.events] == [
        ("login", "192.0.2.1", 401, "refused", 1)
    ] * 3


async def test_the_others_of_a_minute_are_one_event(logins: FailedLogins, trail: Kept, clock: ManualClock) -> None:
    await fail(logins, "192.0.2.1", EACH + 500, actor="CN=a")
    assert len(trail.events) == EACH

    clock.advance(60_000)
    await fail(logins, "192.0.2.2")

    assert [(each.address, each.times, each.actor) for each in trail.events[EACH:]] == [
        ("192.0.2.1", 500, "CN=a"),
        ("192.0.2.2", 1, ""),
    ]


async def test_who_was_claimed_is_not_kept_where_it_was_not_always_the_same(logins: FailedLogins, trail: Kept) -> None:
    for name in ["CN=a"] * EACH + ["CN=b", "CN=c"]:
        await fail(logins, "192.0.2.1", actor=name)
    await logins.close()

    assert (trail.events[-1].actor, trail.events[-1].times) == ("", 2)


async def test_many_addresses_fill_neither_memory_nor_file(logins: FailedLogins, trail: Kept) -> None:
    for each in range(ADDRESSES + 50):
        await fail(logins, f"10.0.{each // 256}.{each % 256}")
    await logins.close()

    assert len(trail.events) == ADDRESSES + 1
    assert (trail.events[-1].address, trail.events[-1].times) == ("", 50)
