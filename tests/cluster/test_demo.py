"""The main job while parts die: each kill must fall into traffic."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from cluster import demo
from cluster.demo import BLOWS, Blow, Blows

COUNT = 60


@pytest.mark.parametrize("fault", [None, OSError("no such process")])
def test_messages_are_left_for_every_kill_and_all_come_in_the_end(
    monkeypatch: pytest.MonkeyPatch, fault: OSError | None
) -> None:
    came: list[int] = []
    at_kill: list[int] = []
    parts = len(BLOWS) + 1
    blows = Blows()

    def strike(_: object) -> str:
        if fault and at_kill:
            raise fault
        while len(came) < COUNT * (len(at_kill) + 1) // parts:  # as many as may come before it
            threading.Event().wait(0.001)
        at_kill.append(len(came))
        return "something"

    monkeypatch.setattr(demo, "BLOWS", tuple(Blow("a kill", strike) for _ in BLOWS))
    monkeypatch.setattr(demo, "QUIET", 0.0)
    monkeypatch.setattr(demo, "SPREAD", 0.0)
    cluster: Any = object()
    caretaker: Any = SimpleNamespace(wait_until_all_well=lambda _: True)
    numbers: Any = iter(range(COUNT))
    with blows.falling(cluster, caretaker):
        blows.begin()
        came.extend(int(str(each)) for each in blows.pace(numbers, COUNT))

    assert came == list(range(COUNT))
    assert at_kill == [COUNT * number // parts for number in range(1, parts if fault is None else 2)]
