"""Reads of a range of a topic: each message stored before is in it, in order, once."""

from typing import TYPE_CHECKING

from simulation.histories.attempts import Publish
from simulation.histories.payload import name_of

if TYPE_CHECKING:
    from simulation.workload import Actor

TOPIC = "jobs"


async def read(actor: "Actor") -> None:
    """Read the newest messages, or all."""
    began = actor.stage.node.world.now
    publishes = [each for each in actor.stage.history.attempts if isinstance(each, Publish) and each.topic == TOPIC]
    stored = {id_: name for each in publishes for id_, name in zip(each.ids, each.names, strict=False)}
    first = actor.chance.choice((0, max(stored, default=0) // 2, max(max(stored, default=0) - 20, 0)))
    found = await actor.read_range(TOPIC, first)
    if found is None:
        return
    ids = [each["offset"] for each in found]
    if ids != list(range(first, first + len(ids))):
        actor.stage.complain(f"range: of {TOPIC} from {first} came ids that do not follow each other: {ids[:5]}...")
    names = {each["offset"]: name_of(each.get("attributes", {}), each["data"]) for each in found}
    wrong = [id_ for id_, name in stored.items() if id_ >= first and names.get(id_) != name]
    if wrong:
        id_ = wrong[0]
        actor.stage.complain(
            f"range: {TOPIC} read from {first} at {began:.3f} s has {names.get(id_)} as {id_}, where {stored[id_]} is"
        )
