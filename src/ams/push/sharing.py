"""Sharing: which of all that is wanted a holder shall hold. Pure; every keeper of `ams.push.leases` goes by it.

Shares differ by at most one, and whoever has most already has the larger one, so that as little moves as can be. Only
the holder that sends the heartbeat gets anything: so nothing is given to one that may not be there any more.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ams.core.names import SubscriptionId
from ams.push.leases import Heartbeat

Subscriptions = frozenset[SubscriptionId]


class Standing(NamedTuple):
    """Who has what before a heartbeat. Whose lease has ended has nothing, and is not in here."""

    own: Subscriptions
    """Of the holder that sends it."""
    others: Mapping[str, Subscriptions]
    leaving: frozenset[str] = frozenset()
    """Those of the others who want no more, and only finish what they have."""


class Share(NamedTuple):
    """What a heartbeat comes to."""

    told: Subscriptions
    """What the holder shall hold from now on."""
    leases: Subscriptions
    """What nobody else may have: that, and what the holder is still finishing."""


def share(heartbeat: Heartbeat, wanted: Subscriptions, standing: Standing, *, gives: bool = True) -> Share:
    """Return what a holder shall hold, and what it has.

    Without `gives` it gets nothing that it does not say it holds already, nor did have.
    """
    taken: Subscriptions = frozenset().union(*standing.others.values())
    held = heartbeat.held - taken
    if heartbeat.leaving:
        return Share(frozenset(), held)
    free = wanted - taken - held
    quota = _quota(wanted, (held | standing.own) & wanted, heartbeat.holder, standing)
    kept = _first(quota, held & wanted)
    given = _first(quota - len(kept), free & standing.own, free - standing.own if gives else ())
    return Share(frozenset(kept + given), held.union(given))


def _quota(wanted: Subscriptions, own: Subscriptions, name: str, standing: Standing) -> int:
    """Return how many of the wanted subscriptions are this holder's share."""
    sharers = [(-len(own), name)]
    sharers += [
        (-len(held & wanted), other) for other, held in standing.others.items() if other not in standing.leaving
    ]
    least, larger = divmod(len(wanted), len(sharers))
    return least + (sorted(sharers).index((-len(own), name)) < larger)


def _first(most: int, *sets: Iterable[SubscriptionId]) -> list[SubscriptionId]:
    """Return so many at most, those of the first set first; always the same ones, so that none goes to and fro."""
    found: list[SubscriptionId] = []
    for each in sets:
        some = list(each)
        room = most - len(found)
        found += some if len(some) <= room else sorted(some)[:room]
    return found
