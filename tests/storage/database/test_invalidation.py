"""A node's caches, and their invalidation by changes of other nodes."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

import pytest

from ams.storage.database.invalidation import TOPIC, Cache, CacheValidity, Invalidation, Invalidations


def answer(value: str | None) -> Callable[[], Awaitable[str | None]]:
    async def fill() -> str | None:
        return value

    return fill


async def no_fill() -> str | None:
    raise AssertionError("the entry was not in the cache")


class SlowFill:
    def __init__(self, value: str) -> None:
        self.began = asyncio.Event()
        self.released = asyncio.Event()
        self._value = value

    async def __call__(self) -> str:
        self.began.set()
        await self.released.wait()
        return self._value


async def test_an_entry_that_had_its_time_goes_and_fills_under_way_stay() -> None:
    cache: Cache[str, str] = Cache(10)
    await cache.find("a", answer("A"))
    slow = SlowFill("B")
    filling = asyncio.create_task(cache.find("b", slow))
    await slow.began.wait()
    cache.discard("a")
    slow.released.set()
    await filling

    assert (await cache.find("a", answer("new")), await cache.find("b", no_fill)) == ("new", "B")


async def test_what_is_known_is_what_a_hit_would_be() -> None:
    trust = CacheValidity()
    cache: Cache[str, str] = Cache(2, trust=trust)
    assert cache.find_cached("a") is None
    for key in ("a", "b"):
        await cache.find(key, answer(key.upper()))

    assert cache.find_cached("a") == "A"
    await cache.find("c", answer("C"))
    assert (cache.find_cached("a"), cache.find_cached("b")) == ("A", None)  # the use counted
    trust.until = 0.0
    assert cache.find_cached("a") is None


async def test_a_hit_neither_fills_nor_suspends() -> None:
    """17.4 O11."""
    cache: Cache[str, str] = Cache(10)
    await cache.find("a", answer("A"))

    hit = cache.find("a", no_fill)

    with pytest.raises(StopIteration) as ended:  # it ends at its first step
        hit.send(None)
    assert ended.value.value == "A"


async def test_what_does_not_exist_is_not_remembered() -> None:
    cache: Cache[str, str] = Cache(10)
    assert await cache.find("a", answer(None)) is None
    assert await cache.find("a", answer("made since")) == "made since"


@pytest.mark.parametrize("forget", [
    lambda cache: cache.forget("a"), lambda cache: cache.forget_where(lambda _key, value: value == "old"),
], ids=["by its key", "by a condition"])  # fmt: skip
async def test_a_fill_that_began_before_a_forgetting_is_not_kept(forget: Callable[[Cache[str, str]], None]) -> None:
    cache: Cache[str, str] = Cache(10)
    fill = SlowFill("old")
    filling = asyncio.create_task(cache.find("a", fill))
    await fill.began.wait()

    forget(cache)
    fill.released.set()

    assert await filling == "old"
    assert await cache.find("a", answer("new")) == "new"


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
        await topics.find(name, answer("value"))

    hub.apply([Invalidation("topic", ("a",))])

    assert (await topics.find("a", answer("other")), await topics.find("b", answer("other"))) == ("other", "value")


async def test_everything_is_forgotten_for_a_kind_nobody_knows() -> None:
    hub = Invalidations()
    caches = [hub.new_cache(10), hub.new_cache(10)]
    for cache in caches:
        await cache.find("a", answer("value"))

    hub.apply([Invalidation("made by a newer node", ("x",))])

    assert [await cache.find("a", answer("other")) for cache in caches] == ["other", "other"]


async def test_caches_are_believed_for_a_time_and_until_somebody_else_may_write(monkeypatch: pytest.MonkeyPatch):
    hub = Invalidations()
    cache = hub.new_cache(10)
    await cache.find("a", answer("value"))
    assert hub.validity.holds()

    hub.validity.until = time.monotonic() + 60
    assert await cache.find("a", answer("other")) == "value"
    with monkeypatch.context() as later:
        now = time.monotonic()
        later.setattr(time, "monotonic", lambda: now + 61)
        assert await cache.find("a", answer("other")) == "other"
    hub.validity.until = time.monotonic() + 60
    assert await cache.find("a", answer("other")) == "value"

    hub.validity.until = -math.inf

    assert not hub.validity.holds()
    assert await cache.find("a", answer("other")) == "other"
    assert len(cache) == 1  # what was learnt meanwhile is not kept
