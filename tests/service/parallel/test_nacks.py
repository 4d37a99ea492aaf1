"""Which id gave a message back last."""

from ams.core.ack_ids import AckId
from ams.core.names import Offset
from ams.service.parallel.nacks import MOST_NOTED, Nacks


def test_only_those_that_were_given_back_last_are_remembered() -> None:
    nacks = Nacks()
    nacks.note(map(Offset, range(MOST_NOTED)), "a")
    nacks.note([Offset(0)], "b")
    nacks.note([Offset(MOST_NOTED)], "a")

    assert nacks.has(AckId(Offset(0), "b"))
    assert not nacks.has(AckId(Offset(0), "a"))
    assert not nacks.has(AckId(Offset(1), "a"))
    assert nacks.has(AckId(Offset(2), "a"))
