"""The cache of others' documents: fresh, stale or expired; one fetch for all; files; limits."""

import asyncio
import os
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ams.core.clock import Milliseconds
from ams.storage import document_cache
from ams.storage.document_cache import DocumentCache, Edition
from ams.storage.files import Disk
from ams.storage.free_space import UNLIMITED, FreeSpace
from tests.support.clock import ManualClock
from tests.support.waiting import wait_until_async

FRESH, GOOD, RETRY, REFRESH_RETRY, UNUSED = 1_000, 10_000, 300, 500, 50_000


class SiteUnavailable(Exception):
    """The site of a document does not answer."""


class Papers(DocumentCache[str, str, str]):
    max_documents = 3
    retry_ms = RETRY
    refresh_retry_ms = REFRESH_RETRY

    def __init__(self, site: "DocumentSite", now: Callable[[], Milliseconds], folder: str = "", **more: Any) -> None:
        super().__init__(now, folder, **more)
        self.site = site
        self.file_errors: list[tuple[str, str, bool]] = []

    def _key_of(self, source: str) -> str:
        return source

    async def _fetch(self, source: str, before: str | None) -> Edition[str]:
        self.site.fetches[source] += 1
        if self.site.held is not None:
            await self.site.held.wait()
        if source not in self.site.published:
            raise SiteUnavailable(source)
        found = self.site.published[source]
        return self._edition(before if before is not None and before >= found else found)

    def _edition(self, document: str) -> Edition[str]:
        now = self._now()
        return Edition(document, now + FRESH, now + self.site.good_for, f"{document}.".encode())

    def _file_name(self, key: str) -> str:
        return f"{key}.txt"

    def _read(self, source: str, data: bytes) -> Edition[str] | None:
        text = data.decode()
        if not text.endswith("."):
            raise ValueError("it is torn")
        return None if text.startswith("of another") else self._edition(text[:-1])

    def _log_file_error(self, key: str, reason: str, *, is_read: bool) -> None:
        self.file_errors.append((key, reason, is_read))


class FileFirst(Papers):
    is_file_first = True


class KeptUp(Papers):
    unused_ms = UNUSED
    upkeep_event = "papers.upkeep_failed"


@dataclass
class DocumentSite:
    """Publishes documents, counts the fetches of each, and makes caches of them."""

    published: dict[str, str] = field(default_factory=lambda: {name: f"{name}1" for name in "abcdef"})
    fetches: Counter[str] = field(default_factory=Counter)
    held: asyncio.Event | None = None  # answers wait for it
    good_for: int = GOOD
    clock: ManualClock = field(default_factory=ManualClock)
    caches: list[Papers] = field(default_factory=list)

    def cache(self, kind: type[Papers] = Papers, folder: Path | str = "", **more: Any) -> Papers:
        self.caches.append(kind(self, self.clock.monotonic, str(folder), **more))
        return self.caches[-1]


@pytest.fixture
async def site() -> AsyncIterator[DocumentSite]:
    site = DocumentSite()
    yield site
    for each in site.caches:
        await each.close()


async def finish_background() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        await task


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("ask", [Papers.get, Papers.get_newer])
async def test_all_who_wait_share_one_fetch_and_one_who_leaves_does_not_end_it(site: DocumentSite, ask: Any) -> None:
    papers = site.cache()
    site.held = asyncio.Event()
    first, *others = (asyncio.create_task(ask(papers, "a")) for _ in range(100))
    await asyncio.sleep(0)
    first.cancel()
    site.held.set()

    assert {state.document for state in await asyncio.gather(*others)} == {"a1"}
    assert first.cancelled()
    assert site.fetches == {"a": 1}


async def test_a_fresh_one_is_used_a_stale_one_fetched_behind_users_an_expired_one_before(site: DocumentSite) -> None:
    papers = site.cache()
    assert await papers.document("a") == "a1"
    site.published["a"] = "a2"

    site.clock.advance(FRESH - 1)
    assert await papers.document("a") == "a1"
    await finish_background()
    assert site.fetches["a"] == 1

    site.clock.advance(1)
    assert await papers.document("a") == "a1"
    await finish_background()
    assert site.fetches["a"] == 2
    assert await papers.document("a") == "a2"

    site.published["a"] = "a3"
    site.clock.advance(GOOD)
    assert (await papers.document("a"), papers.changes) == ("a3", 3)


async def test_an_older_document_takes_no_place_and_is_no_change(site: DocumentSite) -> None:
    papers = site.cache()
    for published in ("a5", "a4", "a5"):
        site.published["a"] = published
        assert await papers.document("a") == "a5"
        site.clock.advance(GOOD)
    assert (papers.changes, site.fetches["a"]) == (1, 3)


async def test_after_a_failure_the_next_fetch_waits(site: DocumentSite) -> None:
    papers = site.cache()
    del site.published["a"]
    for pause, fetches in ((0, 1), (0, 1), (RETRY, 2), (RETRY - 1, 2)):
        site.clock.advance(pause)
        with pytest.raises(SiteUnavailable):
            await papers.document("a")
        assert site.fetches["a"] == fetches

    site.published["a"] = "a1"
    site.clock.advance(1)
    assert await papers.document("a") == "a1"
    assert papers.cached_state("a").failure is None


async def test_a_failed_refresh_leaves_the_document_as_good_as_it_was(site: DocumentSite) -> None:
    papers = site.cache()
    await papers.document("a")
    del site.published["a"]

    site.clock.advance(FRESH)
    for pause in (0, REFRESH_RETRY - 1, 1):
        site.clock.advance(pause)
        assert await papers.document("a") == "a1"
        await finish_background()
    assert site.fetches["a"] == 3
    assert isinstance(papers.cached_state("a").failure, SiteUnavailable)

    site.clock.advance(GOOD - FRESH - REFRESH_RETRY)
    with pytest.raises(SiteUnavailable):
        await papers.document("a")
    assert papers.cached_state("a").document == "a1", "it may say something nevertheless"


async def test_one_that_expired_before_it_came_is_not_fetched_each_time(site: DocumentSite) -> None:
    papers = site.cache()
    site.good_for = 0
    for _ in range(3):
        assert await papers.document("a") == "a1"
    site.clock.advance(RETRY)
    assert await papers.document("a") == "a1"
    assert site.fetches["a"] == 2


async def test_what_lacks_something_is_fetched_once_in_a_while(site: DocumentSite) -> None:
    papers = site.cache()
    await papers.get("a")
    site.published["a"] = "a2"
    assert await papers.get_newer("a") is papers.cached_state("a")
    assert papers.cached_state("a").document == "a2"
    assert await papers.get_newer("a") is None
    assert site.fetches["a"] == 2

    site.clock.advance(RETRY)
    assert await papers.get_newer("a")
    assert site.fetches["a"] == 3


async def test_a_clock_that_is_put_back_has_it_fetched_again(site: DocumentSite) -> None:
    papers = Papers(site, site.clock.wall)
    for fetches in (1, 2):
        assert await papers.document("a") == "a1"
        assert site.fetches["a"] == fetches
        site.clock.step(-1)

    del site.published["a"]
    for fetches in (3, 4):  # a failure of later says nothing either
        with pytest.raises(SiteUnavailable):
            await papers.document("a")
        assert site.fetches["a"] == fetches
        site.clock.step(-1)


async def test_a_failure_that_is_raised_often_takes_no_memory_and_holds_no_frames(site: DocumentSite) -> None:
    papers = site.cache()
    site.published.clear()
    for _ in range(5):
        with pytest.raises(SiteUnavailable) as raised:
            await papers.document("a")
        assert len(traceback.extract_tb(raised.value.__traceback__)) == 2
    assert (raised.value.__cause__, raised.value.__context__) == (None, None)


async def test_what_was_not_used_for_longest_leaves_memory_and_folder(site: DocumentSite, tmp_path: Path) -> None:
    papers = site.cache(folder=tmp_path)
    for name in "abca":
        await papers.document(name)
    site.clock.advance(FRESH)
    await papers.start_fetch("b")  # a refresh is no use of it
    await papers.document("d")

    assert list(papers.states) == ["c", "a", "d"]
    assert names(tmp_path) == ["a.txt", "c.txt", "d.txt"]


async def test_all_weigh_so_much_together_and_one_is_kept_in_any_case(site: DocumentSite, tmp_path: Path) -> None:
    papers = site.cache(folder=tmp_path)
    papers.max_bytes = 7
    for name in "abc":  # each of three bytes
        await papers.document(name)
    assert list(papers.states) == ["b", "c"]
    assert names(tmp_path) == ["b.txt", "c.txt"]

    site.published["d"] = "d" * 100
    await papers.document("d")
    assert list(papers.states) == ["d"]
    assert names(tmp_path) == ["d.txt"]


async def test_files_of_earlier_runs_are_bounded_and_no_other_is_touched(site: DocumentSite, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for age, name in enumerate(("x", "y.new", "z")):
        (tmp_path / f"{name}.txt").write_text("left.")
        os.utime(tmp_path / f"{name}.txt", (1000 - age, 1000 - age))
    await site.cache(folder=tmp_path).document("a")
    assert names(tmp_path) == ["a.txt", "folder", "x.txt", "y.new.txt"]


async def test_files_are_the_owners_and_spare_a_fetch_or_stand_in_for_a_failed_one(site: DocumentSite, tmp_path: Path):
    folder = tmp_path / "made" / "when needed"
    await site.cache(folder=folder).document("a")
    assert [oct(each.stat().st_mode & 0o777) for each in (folder / "a.txt", folder)] == ["0o600", "0o700"]
    site.published["a"] = "a2"

    assert (await site.cache(FileFirst, folder).document("a"), site.fetches["a"]) == ("a1", 1)
    assert await site.cache(folder=folder).document("a") == "a2"
    del site.published["a"]
    papers = site.cache(folder=folder)
    assert await papers.document("a") == "a2"
    assert isinstance(papers.cached_state("a").failure, SiteUnavailable)
    assert (site.fetches["a"], papers.file_errors) == (3, [])


@pytest.mark.parametrize("kind", [Papers, FileFirst])
async def test_a_file_torn_or_of_another_is_none(site: DocumentSite, tmp_path: Path, kind: type[Papers]) -> None:
    del site.published["a"]
    for data, errors in (
        (None, []), (b"of another.", []), (b"a1", ["it is torn"]),
        (b"\xff.", ["'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"]),
    ):  # fmt: skip
        if data is not None:
            (tmp_path / "a.txt").write_bytes(data)
        papers = site.cache(kind, tmp_path)
        with pytest.raises(SiteUnavailable):
            await papers.document("a")
        assert papers.file_errors == [("a", error, True) for error in errors]


async def test_a_file_that_has_expired_is_the_base_of_what_is_fetched(site: DocumentSite, tmp_path: Path) -> None:
    site.published["a"] = "a5"
    await site.cache(folder=tmp_path).document("a")
    site.published["a"] = "a4"
    site.good_for = 0
    assert (await site.cache(FileFirst, tmp_path).document("a"), site.fetches["a"]) == ("a5", 2)


async def test_what_cannot_be_kept_is_used_and_told(site: DocumentSite, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    full = FreeSpace(Disk(), str(tmp_path), 2**62)
    for name, space, reason in (("file", UNLIMITED, "Not a directory"), ("full", full, full.growth_refusal())):
        papers = site.cache(folder=tmp_path / name, space=space)
        assert await papers.document("a") == "a1"
        assert ("a", reason, False) in papers.file_errors
    assert names(tmp_path) == ["file"]


async def test_what_is_forgotten_is_in_no_memory_or_file_also_when_it_comes_later(site: DocumentSite, tmp_path: Path):
    papers = site.cache(folder=tmp_path)
    await papers.document("a")
    papers.forget("a")
    papers.forget("a")
    assert (papers.cached_state("a").document, names(tmp_path)) == (None, [])

    site.held = asyncio.Event()
    waiting = asyncio.create_task(papers.document("a"))
    await wait_until_async(lambda: site.fetches["a"] == 2)
    papers.forget("a")
    site.held.set()
    assert await waiting == "a1"
    assert (papers.cached_state("a").document, names(tmp_path)) == (None, [])


async def test_upkeep_fetches_what_is_stale_and_forgets_what_is_not_used(site: DocumentSite, tmp_path: Path) -> None:
    papers = site.cache(KeptUp, tmp_path)
    await papers.document("a")
    del site.published["b"]
    with pytest.raises(SiteUnavailable):
        await papers.document("b")
    await papers.refresh_due()
    assert site.fetches == {"a": 1, "b": 1}

    site.published |= {"a": "a2", "b": "b1"}
    site.clock.advance(FRESH)
    await papers.refresh_due()
    assert [papers.cached_state(name).document for name in "ab"] == ["a2", "b1"]

    site.clock.advance(UNUSED - FRESH)
    await papers.document("b")
    site.clock.advance(1)
    await papers.refresh_due()
    assert list(papers.states) == ["b"]
    assert names(tmp_path) == ["b.txt"]


async def test_upkeep_goes_on_by_itself_after_an_error_too(site: DocumentSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.storage.document_cache.UPKEEP_SECONDS", 0.001)
    papers = site.cache(KeptUp)
    monkeypatch.setattr(papers, "refresh_due", lambda: None)  # it cannot be awaited
    with capture_logs() as lines:
        await papers.document("a")
        await wait_until_async(lambda: len(lines) > 2)
        await papers.close()
    assert {each["event"] for each in lines} == {"papers.upkeep_failed"}
    assert not asyncio.all_tasks() - {asyncio.current_task()}


ACTIONS = st.sampled_from(["get", "newer", "forget", "refresh", "wait", "fail", "restart"])


@settings(max_examples=50)
@given(st.lists(st.tuples(ACTIONS, st.sampled_from("abcdef")), max_size=30))
def test_memory_and_files_are_bounded(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]) -> None:
    folder = tmp_path_factory.mktemp("papers")

    async def run_steps() -> None:
        site = DocumentSite()
        papers, has_restarted = site.cache(folder=folder), False
        for what, name in steps:
            if what in ("get", "refresh"):
                await (papers.get(name) if what == "get" else papers.start_fetch(name))
            elif what == "newer":
                await papers.get_newer(name)
            elif what == "forget":
                papers.forget(name)
            elif what == "wait":
                site.clock.advance(FRESH)
            elif what == "fail" and site.published.pop(name, None) is None:
                site.published[name] = f"{name}2"
            elif what == "restart":
                papers, has_restarted = site.cache(folder=folder), True
            await finish_background()
            assert len(papers.states) <= papers.max_documents
            kept = {f"{key}.txt" for key, state in papers.states.items() if state.document is not None}
            assert set(names(folder)) == kept or has_restarted
            assert len(names(folder)) <= papers.max_documents

    with pytest.MonkeyPatch.context() as patched:  # what syncs take is much more than all the rest
        patched.setattr(document_cache, "write_whole", lambda _files, path, data: Path(path).write_bytes(data))
        asyncio.run(run_steps())
