"""Look-ups: shared by name, bounded in time and threads, and slow names have threads apart."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest

from ams.outgoing import lookups
from ams.outgoing.lookups import SLOW_THREADS, THREADS, Lookups
from tests.support.waiting import wait_until_async


class Names:
    """Finds addresses; names that begin with `slow` take until the gate opens."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked: list[str] = []
        self.threads = 0
        self._lock = threading.Lock()

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host == "nowhere":
            raise OSError(-2, "Name or service not known")
        if host.startswith("slow"):
            with self._lock:
                self.threads += 1
            self.gate.wait(60)
            with self._lock:
                self.threads -= 1
        return ["192.0.2.1"]


@pytest.fixture
def names() -> Iterator[Names]:
    names = Names()
    yield names
    names.gate.set()


async def test_who_asks_for_the_same_name_shares_a_look_up_and_its_answer(names: Names) -> None:
    look_up = Lookups(names)

    assert await asyncio.gather(*(look_up("a.example", 443) for _ in range(50))) == [["192.0.2.1"]] * 50
    await look_up("a.example", 443)

    assert names.asked == ["a.example"]


async def test_an_answer_is_used_again_for_a_short_while_only(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "KEEP_SECONDS", 0.0)
    look_up = Lookups(names)

    await look_up("a.example", 443)
    await look_up("a.example", 443)

    assert names.asked == ["a.example"] * 2


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1"])
async def test_addresses_are_not_looked_up(names: Names, host: str) -> None:
    assert await Lookups(names)(host, 443) == [host]
    assert names.asked == []


async def test_what_has_no_address_is_told_to_all(names: Names) -> None:
    look_up = Lookups(names)

    told = await asyncio.gather(*(look_up("nowhere", 443) for _ in range(3)), return_exceptions=True)

    assert [str(each) for each in told] == ["[Errno -2] Name or service not known"] * 3
    assert names.asked == ["nowhere"]


def has_answer(look_up: Lookups, *hosts: str) -> Callable[[], Awaitable[bool]]:
    """Return whether names are found in time, which on a busy machine they may not be at the first try."""

    async def asked() -> bool:
        found = await asyncio.gather(*(look_up(each, 443) for each in hosts), return_exceptions=True)
        return found == [["192.0.2.1"]] * len(hosts)

    return asked


async def test_slow_names_end_in_time_and_do_not_hold_up_others(names: Names) -> None:
    look_up = Lookups(names, wait_seconds=0.05)
    slow = [f"slow{number}.example" for number in range(THREADS - 1)]

    told = await asyncio.gather(*(look_up(each, 443) for each in slow), return_exceptions=True)
    assert {each.strerror for each in told if isinstance(each, OSError)} == {"its name servers do not answer"}

    await wait_until_async(has_answer(look_up, "quick.example"))


async def test_names_that_were_slow_have_few_threads(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(lookups, "SLOW_SECONDS", 0.0)
    look_up = Lookups(names, wait_seconds=0.05)
    slow = [f"slow{number}.example" for number in range(THREADS)]
    await asyncio.gather(*(look_up(each, 443) for each in slow), return_exceptions=True)
    names.gate.set()
    await wait_until_async(has_answer(look_up, *slow))
    names.gate.clear()

    await asyncio.gather(*(look_up(each, 443) for each in slow), return_exceptions=True)

    await wait_until_async(lambda: names.threads == SLOW_THREADS)
    await wait_until_async(has_answer(look_up, "quick.example"))
    assert names.threads == SLOW_THREADS


async def test_a_look_up_that_is_not_waited_for_any_more_complains_nowhere(names: Names) -> None:
    look_up = Lookups(names)
    waiting = asyncio.create_task(look_up("slow.example", 443))
    await wait_until_async(lambda: names.threads)

    waiting.cancel()
    names.gate.set()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await look_up("slow.example", 443) == ["192.0.2.1"]


async def test_the_machine_resolves_names() -> None:
    assert set(await Lookups()("localhost", 443)) <= {"127.0.0.1", "::1"}


async def test_a_machine_without_threads_left_is_told_as_a_failed_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = Lookups(lambda host, port: ["192.0.2.1"])

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for number in range(THREADS):
            with pytest.raises(OSError, match="can't start new thread"):
                await look_up(f"host{number}", 443)

    assert await look_up("host0", 443) == ["192.0.2.1"]
