"""Repeats of a publish with its idempotency key: the same messages get the same ids, others are refused."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from simulation.histories.payload import message

if TYPE_CHECKING:
    from simulation.workload import Actor

TOPIC = "jobs"
KNOWN_SECONDS = 600.0  # less than the lifetime of keys


class Sent(NamedTuple):
    """An answered publish."""

    key: str
    body: dict[str, Any]
    ids: list[str]
    ended: float


@dataclass
class Keys:
    """Publishes of a client with a key."""

    sent: list[Sent] = field(default_factory=list)


async def publish_again(actor: "Actor") -> None:
    """Publish with a used key, the same messages or others; or with a new key."""
    own, world = actor.shadow(Keys), actor.stage.node.world
    young = [each for each in own.sent if world.now - each.ended < KNOWN_SECONDS]
    if not young or actor.chance.random() < 0.3:
        made = await actor.publish(TOPIC, keyed=True)
        if made.ids:
            body = {"messages": [message(name) for name in made.names]}
            own.sent.append(Sent(made.request, body, [str(each) for each in made.ids], made.ended))
        return
    sent = actor.chance.choice(young)
    has_others = actor.chance.random() < 0.4
    body = {"messages": [message(f"{actor.client.next_request()}/never")]} if has_others else sent.body
    found, status = await actor.change(f"/topics/{TOPIC}:publish", body, allowed=("409",), idempotency_key=sent.key)
    if found.is_done and (has_others or found.document["messageIds"] != sent.ids):
        said = f"{found.document['messageIds']}, and {sent.ids} before"
        actor.stage.complain(f"key: {sent.key} with {'other' if has_others else 'the same'} messages got {said}")
    if status == 409 and not has_others:
        actor.stage.complain(f"key: {sent.key} with the same messages was refused: {found.refusal}")
