import asyncio
import time

import pytest

from ams.core.errors import NotFound, RegistryUnavailable
from ams.storage.database.postgresql.patience import Passing, Patience
from tests.support.waiting import wait_until_async


class Server:
    """A database that may be away, and answers when it is let; counts who asks, and how many do at a time."""

    def __init__(self) -> None:
        self.away = False
        self.asked = self.at_once = self.most_at_once = 0

    async def attempt(self, asks: bool) -> str:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        began = time.monotonic()
        for _ in range(5):
            await asyncio.sleep(0)
        self.at_once -= 1
        if self.away:
            raise Passing(away=True, since=began) from ConnectionError("refused")
        return "answer"


async def test_a_database_that_is_there_is_asked_by_all_at_once() -> None:
    server, patience = Server(), Patience()

    assert await asyncio.gather(*(patience.keep_trying(server.attempt) for _ in range(20))) == ["answer"] * 20

    assert (server.asked, server.most_at_once) == (20, 20)


async def test_one_asks_for_all_while_it_is_away_and_all_go_on_when_it_is_back() -> None:
    server, patience = Server(), Patience(60)
    server.away = True
    first = asyncio.create_task(patience.keep_trying(server.attempt))
    await wait_until_async(lambda: patience.away)
    server.most_at_once, enough = 0, server.asked + 20
    others = [asyncio.create_task(patience.keep_trying(server.attempt)) for _ in range(20)]
    await wait_until_async(lambda: server.asked >= enough)
    assert server.most_at_once == 1

    server.away = False

    assert await asyncio.gather(first, *others) == ["answer"] * 21
    assert patience.away is None


async def test_a_call_waits_so_long_and_the_reason_is_kept_and_then_nobody_waits_but_one_asks() -> None:
    server, patience = Server(), Patience(0.3)
    server.away = True
    began = time.monotonic()

    with pytest.raises(RegistryUnavailable) as caught:
        await patience.keep_trying(server.attempt)

    assert time.monotonic() - began > 0.27
    assert server.asked > 1
    assert str(caught.value.__cause__) == "refused"
    while time.monotonic() - began < 0.4:
        await asyncio.sleep(0.01)
    server.asked = 0
    failures = await asyncio.gather(*(patience.keep_trying(server.attempt) for _ in range(20)), return_exceptions=True)
    assert {type(failure) for failure in failures} == {RegistryUnavailable}
    assert server.asked == 1  # whoever waits asks again
    server.away = False
    assert await patience.keep_trying(server.attempt) == "answer"


async def test_who_is_in_the_way_of_others_tries_again_without_a_database_being_away() -> None:
    patience, tries = Patience(60), 0

    async def attempt(asks: bool) -> int:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise Passing(away=False, since=time.monotonic())
        return tries

    assert await patience.keep_trying(attempt) == 4
    assert patience.away is None


async def test_any_answer_shows_that_the_database_is_there() -> None:
    server, patience = Server(), Patience()
    patience.note(Passing(away=True, since=time.monotonic()))

    async def refuse(asks: bool) -> None:
        raise NotFound("not there")

    with pytest.raises(NotFound):
        await patience.keep_trying(refuse)

    assert patience.away is None
    assert await patience.keep_trying(server.attempt) == "answer"
