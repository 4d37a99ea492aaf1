import asyncio
import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from ams.backup.keeping import answering, keep
from ams.errors import Unusable
from ams.log.embedded import Part
from tests.support.house import House, open_house

HOUR = 3_600_000


async def test_the_socket_is_for_the_owner_only_and_goes_at_the_end(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house, answering(str(tmp_path), house.engines.log):
        assert (tmp_path / "control").stat().st_mode & 0o777 == 0o600

    assert not (tmp_path / "control").exists()


async def test_a_socket_left_by_a_killed_service_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "control"))
    async with open_house(tmp_path) as house, answering(str(tmp_path), house.engines.log):
        (await asyncio.to_thread(keep, str(tmp_path))).close()


async def test_a_folder_may_lie_deeper_than_the_path_of_a_socket_is_long(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 100) / ("b" * 100)
    deep.mkdir(parents=True)
    async with open_house(deep) as house, answering(str(deep), house.engines.log):
        (await asyncio.to_thread(keep, str(deep))).close()


async def sealed(house: House) -> None:
    """Publish, and let it become old enough to go."""
    await house.publish(5)
    house.engines.clock.advance(200 * HOUR)


async def test_files_are_kept_until_the_connection_ends(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house, answering(str(tmp_path), house.engines.log):
        await sealed(house)
        kept = await asyncio.to_thread(keep, str(tmp_path))
        parts = await asyncio.to_thread(kept.parts)
        await house.engines.log.retain()
        assert [os.path.exists(tmp_path / "log" / each.name) for each in parts] == [True] * len(parts)
        assert parts == [Part("7d/0000000000000001.log", parts[0].length)]

        kept.close()
        while list((tmp_path / "log").glob("*/*.log")):
            await house.engines.log.retain()
            await asyncio.sleep(0.01)


async def test_an_unknown_question_is_told_what_there_is(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house, answering(str(tmp_path), house.engines.log):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "control"))
        writer.write(b"who are you\n")
        assert await reader.readline() == b'{"error": "ask keep or files"}\n'
        writer.close()


async def test_a_service_that_ends_meanwhile_is_noticed(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house, answering(str(tmp_path), house.engines.log):
        kept = await asyncio.to_thread(keep, str(tmp_path))

    with closing(kept), pytest.raises(Unusable, match="ended while it was copied; try again"):
        kept.confirm()


async def test_a_folder_that_can_hold_no_socket_serves_without_backups(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        (tmp_path / "control").mkdir()
        async with answering(str(tmp_path), house.engines.log):
            assert await house.publish(1) == 0
