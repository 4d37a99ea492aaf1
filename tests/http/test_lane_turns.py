"""On the lane, too, projects take turns: as requests come, and as a group of them is answered."""

from pathlib import Path
from typing import Any

from tests.support.held_disk import HeldDisk
from tests.support.line import Line
from tests.support.rounds import at_once
from tests.support.two_ways import one_way, request, until

BODY = '{"messages":[{"data":"aGk="}]}'
MANY = 200


class Noting(Line):
    """A line that notes for whom something is written."""

    def __init__(self, name: str, answered: list[str]) -> None:
        super().__init__()
        self._name, self._answered = name, answered

    def write(self, data: Any) -> None:
        super().write(data)
        self._answered.append(self._name)


async def test_a_group_is_answered_in_turns_of_its_projects(tmp_path: Path) -> None:
    disk, rounds, answered = HeldDisk(), at_once(), list[str]()
    async with one_way(tmp_path / "data", lane=True, files=disk, rounds=rounds) as way:
        await way.told([request("POST", "/projects/Q", "{}")])
        await way.told([request("PUT", "/projects/Q/topics/T")])
        packets = {name: request("POST", f"/projects/{name}/topics/T:publish", BODY) for name in "PQ"}
        for each in [*packets.values()] * 2:  # then both heads are known
            await way.told([each])
        known = way.on_lane
        disk.hold()
        protocols = []
        for name in "P" * MANY + "Q":
            _, protocol = way.connect(Noting(name, answered))
            protocol.data_received(packets[name])
            protocols.append(protocol)
        rounds._clock = iter(range(10**6)).__next__  # from now on each look at it finds that a share is over
        disk.release()
        await until(lambda: len(answered) == MANY + 1)

        assert way.on_lane == known + MANY + 1
        # Some are answered before the first look at the clock, and those of a group that was under way by then.
        assert answered.index("Q") < MANY / 2
        for each in protocols:
            each.connection_lost(None)


async def test_who_was_let_in_on_the_lane_takes_the_turns_of_the_project(tmp_path: Path) -> None:
    async with one_way(tmp_path / "data", lane=True) as way:
        await way.told([request("PUT", "/projects/P/topics/T")])
        publish = request("POST", "/projects/P/topics/T:publish", BODY)
        for _ in range(2):  # then its head is known
            await way.told([publish])
        line, connection = way.connect(Line())
        assert connection._asker(publish) == (("127.0.0.1",), "P")
        known = way.on_lane
        connection.data_received(publish)
        await until(lambda: b"200 OK" in line.written)

        assert way.on_lane == known + 1
        assert connection._asker(publish) == ("P", None)
        connection.connection_lost(None)
