import asyncio
import time

from ams.storage.database.invalidation import ISSUERS, TOPIC, Cache, Invalidation, Invalidations


async def value() -> str:
    return "value"


async def other() -> str:
    return "other"


def test_what_is_said_to_other_nodes_is_read_by_them() -> None:
    forget = Invalidation(TOPIC, ("p", "T" * 255))

    assert Invalidation.read(forget.text()) == forget
    assert len(forget.text()) < 8_000


def test_what_nobody_of_ours_said_is_not_understood() -> None:
    for text in ("", "hello", "{}", "[]", "[1]", '["topic", 1]', '"topic"', "[" * 100_000):
        assert Invalidation.read(text) is None


async def test_each_kind_is_forgotten_as_its_cache_says() -> None:
    hub = Invalidations()
    topics: Cache[str, str] = hub.new_cache(10)
    hub.on("topic", topics.forget)
    for name in ("a", "b"):
        await topics.find(name, value)

    hub.apply([Invalidation("topic", ("a",))])

    assert await topics.find("a", other) == "other"
    assert await topics.find("b", other) == "value"


async def test_all_who_keep_something_of_a_kind_forget_it() -> None:
    hub = Invalidations()
    told: list[str] = []
    hub.on(ISSUERS, lambda: told.append("one"))
    hub.on(ISSUERS, lambda: told.append("other"))

    hub.apply([Invalidation(ISSUERS, ())])

    assert told == ["one", "other"]


async def test_everything_is_forgotten_for_a_kind_nobody_knows() -> None:
    hub = Invalidations()
    caches = [hub.new_cache(10), hub.new_cache(10)]
    for cache in caches:
        await cache.find("a", value)

    hub.apply([Invalidation("made by a newer node", ("x",))])

    assert [await cache.find("a", other) for cache in caches] == ["other", "other"]


async def test_caches_are_believed_until_somebody_else_may_write() -> None:
    hub = Invalidations()
    cache = hub.new_cache(10)
    await cache.find("a", value)
    assert hub.trusted

    hub.distrust()

    assert not hub.trusted
    assert await cache.find("a", other) == "other"
    assert len(cache) == 1  # what was learnt meanwhile is not kept


async def test_belief_ends_by_itself_and_comes_back() -> None:
    hub = Invalidations()
    cache = hub.new_cache(10)
    await cache.find("a", value)

    hub.trust(time.monotonic() + 0.05)
    assert await cache.find("a", other) == "value"
    await asyncio.sleep(0.06)
    assert await cache.find("a", other) == "other"

    hub.trust(time.monotonic() + 60)
    assert await cache.find("a", other) == "value"
