import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from simulation.google import LEASE_SECONDS, Answered, GoogleClient, GoogleWorker
from simulation.histories.attempts import ACK, NACK, Facts, Lease, Leased, Outcome, Settle
from simulation.histories.history import History
from simulation.histories.parallel_laws import Parallel, ParallelEnding, violations
from simulation.histories.payload import Held, ordering_key

NAMES = [f"p1/{number}" for number in range(400)]
KEY = ordering_key(NAMES[0])
HELD = [Held(id_, name) for id_, name in enumerate([each for each in NAMES if ordering_key(each) == KEY][:2])]
PLAIN = Parallel("s", "t", LEASE_SECONDS, 5)
KEYED = PLAIN._replace(ordered=True)


class AgreeableService:
    """A service that answers OK to each call, each a second after the one before, and never ends."""

    def __init__(self) -> None:
        self.node = SimpleNamespace(ends=())
        self._seconds = 1.0

    def path(self, *_: str) -> str:
        return "projects/p/subscriptions/s"

    async def unary(self, _: str, request: Any) -> Answered:
        self._seconds += 1
        facts = Facts(request=str(request), started=self._seconds, ended=self._seconds, outcome=Outcome.DONE)
        return Answered(facts, b"", "OK")


def make_leased(number: int, attempt: int = 1) -> Leased:
    return Leased(*HELD[number], ack_id=f"{number}-{attempt}.0.1.1.abcdef")


def settle_calls(kind: Parallel, *asked: tuple[str, list[Leased]]) -> list[Settle]:
    """Lease both messages to a worker by one pull, and settle them; return its history of that."""
    history = History({})
    given = Lease(request="c1", started=0, ended=1, outcome=Outcome.DONE, subscription="s",
                  messages=(make_leased(0), make_leased(1)))  # fmt: skip
    history.add(given)
    calls = cast("GoogleClient", AgreeableService())
    worker = GoogleWorker(cast("Any", None), history, cast("Any", None), "s", calls=calls, kind=kind)

    async def settle() -> None:
        for verb, messages in asked:
            await worker.settle(verb, messages)

    asyncio.run(settle())
    return [each for each in history.attempts if isinstance(each, Settle)]


def is_confirmed(found: list[Settle], message: Leased) -> bool:
    of_it = [each for each in found if each.verb == ACK and message.ack_id in each.ids]
    return any(each.is_confirmed(message.ack_id) for each in of_it)


@pytest.mark.parametrize("kind", [PLAIN, KEYED], ids=["plain", "keyed"])
def test_an_ok_to_an_acknowledgement_says_that_the_message_is_done(kind: Parallel) -> None:
    found = settle_calls(kind, (ACK, [make_leased(0), make_leased(1)]))

    assert is_confirmed(found, make_leased(0))
    assert is_confirmed(found, make_leased(1))


def test_an_ok_to_an_id_that_its_client_gave_back_says_nothing() -> None:
    """Worlds 1014 and 1033: such a message is redelivered, and that was no fault of the service."""
    found = settle_calls(PLAIN, (NACK, [make_leased(0)]), (ACK, [make_leased(0), make_leased(1)]))

    assert not is_confirmed(found, make_leased(0))
    assert is_confirmed(found, make_leased(1))
    again = Lease(
        request="c2", started=9, ended=10, outcome=Outcome.DONE, subscription="s", messages=(make_leased(0, attempt=2),)
    )
    told = violations(PLAIN, HELD, [*found, again], ParallelEnding((), {"s": len(HELD)}))
    assert not [each for each in told if each.startswith("came back")]


def test_an_ok_says_nothing_of_a_message_behind_one_of_its_key_that_is_not_done() -> None:
    found = settle_calls(KEYED, (ACK, [make_leased(1)]), (ACK, [make_leased(0)]), (ACK, [make_leased(1)]))

    assert [each.is_confirmed(make_leased(1).ack_id) for each in found if make_leased(1).ack_id in each.ids] == [
        False, True,
    ]  # fmt: skip
    assert is_confirmed(found, make_leased(0))
