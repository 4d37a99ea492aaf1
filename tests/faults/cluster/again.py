"""Requests that haproxy sent to a second node, as the first one that had them died: both may have done them."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from tests.faults.attempts import Attempt, Outcome, Seek
from tests.faults.parallel.attempts import Settle


def with_first_tries(attempts: Iterable[Attempt], resent: Collection[str]) -> Iterator[Attempt]:
    """Yield the attempts; of those sent again (`resent` has their requests) also what the first try may have done.

    A seek moves twice then, perhaps with an acknowledgement between. What is late the second time may have been done
    the first time. Of any other request the second time changes nothing.
    """
    for each in attempts:
        if each.request not in resent:
            yield each
        elif isinstance(each, Seek):
            yield replace(each, request=f"{each.request} (first try)", outcome=Outcome.UNKNOWN)
            yield each
        elif isinstance(each, Settle) and each.late:
            yield replace(each, outcome=Outcome.UNKNOWN, late=())
        else:
            yield each
