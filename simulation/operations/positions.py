"""Positions of a parallel subscription: snapshots, and seeks to them, to times and to offsets."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ams.core.clock import Milliseconds, publish_time
from simulation.histories.attempts import Outcome
from simulation.histories.payload import message
from simulation.operations.shadow import Coming
from simulation.seams import START_OF_TIME

if TYPE_CHECKING:
    from simulation.workload import Actor

MOVED_NAME = "moved"  # of the topic and of the subscription
SNAPSHOTS = 2
DEADLINE_SECONDS = 10
DRAINS = 60
_PATH = f"/subscriptions/{MOVED_NAME}"


class Place(NamedTuple):
    """Surely acknowledged messages, and uncertain ones; all others must be delivered."""

    sure: frozenset[int] = frozenset()
    maybe: frozenset[int] = frozenset()

    def either(self, other: "Place") -> "Place":
        """Return the union: the state is one of the two."""
        sure = self.sure & other.sure
        return Place(sure, (self.sure | self.maybe | other.sure | other.maybe) - sure)


class Stored(NamedTuple):
    """A message, and the simulated seconds between which it was stored."""

    id: int
    began: float
    ended: float


@dataclass
class Position:
    """Expected state of the subscription."""

    stored: list[Stored] = field(default_factory=list)
    place: Place = Place()
    snapshots: dict[str, Place] = field(default_factory=dict)
    coming: dict[str, Coming] = field(default_factory=dict)

    def before(self, moment: float) -> Place:
        """Return the position after a seek to a moment."""
        sure = frozenset(each.id for each in self.stored if each.ended < moment - 0.002)
        later = {each.id for each in self.stored if each.began > moment + 0.002}
        return Place(sure, frozenset(each.id for each in self.stored) - sure - later)


async def prepare(admin: "Actor") -> None:
    """Make the topic and the subscription."""
    client = admin.client
    await client.must(f"/topics/{MOVED_NAME}", None, method="PUT")
    body = {
        "topic": f"{client.resource}/topics/{MOVED_NAME}",
        "type": "parallel",
        "ackDeadlineSeconds": DEADLINE_SECONDS,
    }
    await client.must(_PATH, body, method="PUT")


async def move(actor: "Actor") -> None:
    """Publish, pull, create a snapshot or seek to one. Only one client does this, so it knows the position."""
    if not actor.is_first:
        return await actor.look()
    own = actor.stage_shadow(Position)
    kind = actor.chance.choice(
        ("publish", "publish", "pull", "pull", "snapshot", "restore", "offset", "time", "forget")
    )
    if kind == "publish":
        return await _publish(actor, own)
    if kind == "pull":
        await pull(actor, own)
        return None
    if kind in ("snapshot", "forget"):
        return await _snapshot(actor, own, makes=kind == "snapshot")
    return await _seek(actor, own, kind)


async def _publish(actor: "Actor", own: Position) -> None:
    request = actor.client.next_request()
    body = {"messages": [message(f"{request}/{place}") for place in range(actor.chance.randint(1, 6))]}
    found, _ = await actor.change(f"/topics/{MOVED_NAME}:publish", body)
    if found.is_done:
        facts = found.facts
        own.stored += [Stored(int(each), facts["started"], facts["ended"]) for each in found.document["messageIds"]]


async def pull(actor: "Actor", own: Position) -> set[int] | None:
    """Pull once and acknowledge the messages; return the ids, None without an answer."""
    found, _ = await actor.change(f"{_PATH}:pull", {"maxMessages": "40", "returnImmediately": "true"})
    if not found.is_done:
        return None
    received = found.document["receivedMessages"]
    ids = [int(each["message"]["messageId"]) for each in received]
    if again := own.place.sure & set(ids):
        actor.stage.complain(
            f"came back: {MOVED_NAME} gives {sorted(again)}, which its last seek or acknowledgement has done"
        )
    if ids:
        body = {"ackIds": [each["ackId"] for each in received]}
        settled, _ = await actor.change(f"{_PATH}:acknowledge", body, allowed=("408",))
        sure, maybe = own.place
        if settled.is_done:
            own.place = Place(sure | set(ids), maybe - set(ids))
        else:
            own.place = Place(sure, (maybe | set(ids)) - sure)
    return set(ids)


async def _snapshot(actor: "Actor", own: Position, *, makes: bool) -> None:
    name = f"{MOVED_NAME}-{actor.chance.randrange(SNAPSHOTS)}"
    coming = own.coming.setdefault(name, Coming())
    body = {"subscription": MOVED_NAME} if makes else None
    method = "PUT" if makes else "DELETE"
    found, status = await actor.change(f"/snapshots/{name}", body, method=method, allowed=("404", "409"))
    outcome = found.facts["outcome"]
    if outcome is Outcome.UNKNOWN and makes and coming.may_be_there:
        own.snapshots[name] = own.snapshots[name].either(own.place)
    elif outcome is not Outcome.REFUSED and makes:
        own.snapshots[name] = own.place
    if wrong := coming.settle(outcome, status, is_there=makes):
        actor.stage.complain(f"what comes and goes: {method} /snapshots/{name} was {wrong}")


async def _seek(actor: "Actor", own: Position, kind: str) -> None:
    if kind == "restore":
        names = [name for name, coming in own.coming.items() if coming.may_be_there]
        if not names:
            return
        name = actor.chance.choice(names)
        found, status = await actor.change(f"{_PATH}:seek", {"snapshot": name}, allowed=("404",))
        if status in (200, 404) and not own.coming[name].see(is_there=status == 200):
            actor.stage.complain(f"what comes and goes: a seek to snapshot {name} was answered {status}")
        to = own.snapshots[name]
    elif kind == "offset" and own.stored:
        offset = actor.chance.choice(own.stored).id
        found, _ = await actor.change(f"{_PATH}:seek", {"offset": offset})
        ids = frozenset(each.id for each in own.stored)
        to = Place(frozenset(id_ for id_ in ids if id_ < offset))
    elif own.stored and actor.stage.has_right_clock:
        moment = actor.chance.choice(own.stored).began
        time = publish_time(Milliseconds(int((START_OF_TIME + moment) * 1000)))
        found, _ = await actor.change(f"{_PATH}:seek", {"time": time})
        to = own.before(moment)
    else:
        return
    if found.facts["outcome"] is Outcome.DONE:
        own.place = to
    elif found.facts["outcome"] is Outcome.UNKNOWN:
        own.place = own.place.either(to)


async def drain(actor: "Actor") -> None:
    """Drain the backlog: all unacknowledged messages must come."""
    own, came = actor.stage_shadow(Position), set[int]()
    expected = {each.id for each in own.stored} - own.place.sure - own.place.maybe
    for _ in range(DRAINS):
        given = await pull(actor, own)
        came |= given or set()
        if given == set():
            shown = await actor.client.must(f"{_PATH}:offsets", None, method="GET")
            if int(shown["current"]) == int(shown["max"]):
                break
            await asyncio.sleep(1)
    if missing := expected - came:
        actor.stage.complain(f"forgotten: {MOVED_NAME} never gave {sorted(missing)[:5]}, which nobody had acknowledged")
