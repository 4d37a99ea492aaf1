import contextlib
import secrets

import pytest
from sqlalchemy import delete, text, update

from ams.core.errors import InvalidInput, RegistryUnavailable
from ams.storage.audit.records import AuditRecords, EventFilter
from ams.storage.registry.registry import Registry
from ams.storage.registry.tables import audit
from tests.storage.audit.events import NOON, event, list_events
from tests.support.administration import ENGINES

HAS_TRIGGERS = pytest.mark.parametrize("registry_url", ENGINES, indirect=True)  # the model of PostgreSQL has none


async def test_what_is_added_is_listed_newest_first_and_once(records: AuditRecords) -> None:
    first, second, third = event(1), event(3, reason="a\0b", times=7, code=403, result="refused"), event(2)

    await records.add([first, second])
    await records.add([second, third, first])

    assert [each.id for each in await list_events(records)] == [second.id, third.id, first.id]
    assert (await list_events(records))[1] == third
    assert (await list_events(records))[0].reason == "a\N{REPLACEMENT CHARACTER}b"


async def test_a_list_is_cut_by_what_is_wanted(records: AuditRecords) -> None:
    anna = event(0, action="topics:create")
    bert = event(10, actor="bert", action="topics:delete", result="refused", code=403)
    eve = event(20, actor="", action="login", address="198.51.100.1", result="refused", code=401)
    await records.add([anna, bert, eve])

    async def ids(**said: object) -> list[str]:
        found = await records.list(EventFilter(**said))  # type: ignore[arg-type]  # tests name filters freely
        return [each.id for each in found.events]

    assert (await ids(since=NOON + 10), await ids(until=NOON + 10)) == ([eve.id, bert.id], [anna.id])
    assert (await ids(actor="bert"), await ids(action="topics:")) == ([bert.id], [bert.id, anna.id])
    assert (await ids(action="topics%"), await ids(action="Topics:")) == ([], [])
    assert (await ids(address="198.51.100.1"), await ids(result="refused", actor="bert")) == ([eve.id], [bert.id])


async def test_pages_hold_every_event_once_also_those_of_one_moment(records: AuditRecords) -> None:
    events = [event(at // 3) for at in range(10)]
    await records.add(events)

    page = await records.list(EventFilter(), size=3)
    seen = list(page.events)
    while page.next_page_token:
        await records.add([event(100)])  # does not shift what follows
        page = await records.list(EventFilter(), size=3, token=page.next_page_token)
        seen += page.events

    assert [each.id for each in seen] == [each.id for each in reversed(events)]


@pytest.mark.parametrize("token", ["x", "MQ==", "MS4yLjM=", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk="])
async def test_a_token_that_is_none_is_refused(records: AuditRecords, token: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid page token"):
        await records.list(EventFilter(), token=token)


async def test_a_list_is_never_all_there_is(records: AuditRecords) -> None:
    await records.add([event(each) for each in range(101)])
    assert len((await records.list(EventFilter())).events) == 100
    assert len((await records.list(EventFilter(), size=10**18)).events) == 101


@HAS_TRIGGERS
async def test_a15_no_row_can_be_changed_or_deleted(records: AuditRecords, registry: Registry) -> None:
    one = event()
    await records.add([one])

    for statement in (
        update(audit).values(actor="nobody"), delete(audit), delete(audit).where(audit.c.id == one.id),
        text("UPDATE audit SET at = 0"),
    ):  # fmt: skip
        with pytest.raises(RegistryUnavailable):
            await registry._database.put(lambda connection, this=statement: connection.execute(this) and None)

    assert await list_events(records) == [one]


@HAS_TRIGGERS
async def test_a15_no_row_can_be_replaced_or_all_be_taken_at_once(records: AuditRecords, registry: Registry) -> None:
    """Ways round the triggers: SQLite's REPLACE deletes without them, and TRUNCATE is no DELETE."""
    one = event()
    await records.add([one])
    values = "'ams', 'a', '', 'nobody', '', 200, 'done', '', '', 1"
    statements = [
        f"INSERT OR REPLACE INTO audit SELECT number, id, 1, {values} FROM audit",
        f"INSERT OR REPLACE INTO audit SELECT number, 'x', 1, {values} FROM audit",
        f"INSERT OR REPLACE INTO audit SELECT 99, id, 1, {values} FROM audit", "TRUNCATE audit",
        "TRUNCATE audit, audit_prunings CASCADE",
    ]  # fmt: skip

    for each in statements:  # half of them are no statement of the engine
        with contextlib.suppress(RegistryUnavailable):
            await registry._database.put(lambda connection, this=each: connection.execute(text(this)) and None)

    assert await list_events(records) == [one]


async def test_old_rows_go_by_a_pruning_that_is_kept_and_stay_away(records: AuditRecords, registry: Registry) -> None:
    old, new = event(0), event(1000)
    await records.add([old, new])

    assert (await records.prune(NOON + 1000, NOON + 5000), await records.prune(NOON + 1000, NOON + 6000)) == (1, 0)
    await records.add([old])

    assert await list_events(records) == [new]
    assert [await records.holds(each) for each in (old, new, event(2000))] == [True, True, False]
    said = await registry._database.read(
        lambda connection: connection.execute(text("SELECT at, until FROM audit_prunings WHERE at > 0")).all()
    )
    assert [tuple(row) for row in said] == [(NOON + 5000, NOON + 1000)]


async def test_whoever_has_a_name_without_end_is_recorded_all_the_same(records: AuditRecords) -> None:
    """A client's certificate sets it, and an index of PostgreSQL refuses such a long value."""
    endless, next_one = event(1, actor="CN=" + secrets.token_hex(50_000)), event(2)
    await records.add([endless, next_one])
    assert [each.id for each in await list_events(records)] == [next_one.id, endless.id]
