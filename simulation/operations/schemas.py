"""Schemas: refused messages are not stored, and a change holds for every publish after its answer."""

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.histories.attempts import Outcome
from simulation.operations.shadow import Possible

if TYPE_CHECKING:
    from simulation.workload import Actor

TOPIC, SCHEMA = "checked", "number"
TYPES = ("number", "string")  # types that a schema requires and messages have
NO_SCHEMA = "free"  # without a schema


@dataclass
class Checked:
    """Expected state of the topic: accepted types and possible messages."""

    takes: Possible[str] = field(default_factory=lambda: Possible(TYPES[0]))
    says: Possible[str] = field(default_factory=lambda: Possible(TYPES[0]))  # the schema, attached or not
    stored: dict[str, bool] = field(default_factory=dict)  # by name of a message: True if surely stored


async def prepare(admin: "Actor") -> None:
    """Make the topic and its schema."""
    client = admin.client
    await client.must(f"/schemas/{SCHEMA}", {"type": "json", "schema": {"type": TYPES[0]}})
    await client.must(f"/topics/{TOPIC}", {"schema": f"{client.resource}/schemas/{SCHEMA}"}, method="PUT")


async def change(actor: "Actor") -> None:
    """Change the schema, or take it off or put it on."""
    own = actor.stage_shadow(Checked)
    if not actor.is_first:
        return await publish(actor)
    kind = actor.chance.choice(("attach", "detach", "say"))
    if kind == "say":
        to = actor.chance.choice(TYPES)
        # A change that changes nothing is refused.
        found, _ = await actor.change(f"/schemas/{SCHEMA}", {"schema": {"type": to}}, method="PUT", allowed=("400",))
        outcome = found.facts["outcome"]
        own.says.change(outcome, to)
        if outcome is not Outcome.REFUSED:
            attached = own.takes.states - {NO_SCHEMA}
            maybe = attached | {to} if outcome is Outcome.UNKNOWN else {to} if attached else set()
            own.takes.states = (own.takes.states & {NO_SCHEMA}) | maybe
    elif kind == "attach":
        body = {"schema": f"{actor.client.resource}/schemas/{SCHEMA}"}
        found, _ = await actor.change(f"/topics/{TOPIC}:attachSchema", body)
        if found.facts["outcome"] is Outcome.DONE:
            own.takes.states = set(own.says.states)
        elif found.facts["outcome"] is Outcome.UNKNOWN:
            own.takes.states |= own.says.states
    else:
        found, _ = await actor.change(f"/topics/{TOPIC}:detachSchema", None)
        own.takes.change(found.facts["outcome"], NO_SCHEMA)
    return await publish(actor)


async def publish(actor: "Actor") -> None:
    """Publish a message of one of the types. Only one client changes the schema, so it knows the expected answer."""
    own, kind = actor.stage_shadow(Checked), actor.chance.choice(TYPES)
    request = actor.client.next_request()
    data = base64.b64encode(b"7" if kind == "number" else b'"seven"').decode()
    body = {"messages": [{"data": data, "attributes": {"name": request}}]}
    found, status = await actor.change(f"/topics/{TOPIC}:publish", body, allowed=("400",))
    outcome = found.facts["outcome"]
    if outcome is not Outcome.REFUSED:
        own.stored[request] = outcome is Outcome.DONE
    if not actor.is_first:
        return
    others = {each for each in TYPES if each != kind}
    if status == 200 and not own.takes.see(NO_SCHEMA, kind):
        actor.stage.complain(f"schema: {request}, a {kind}, was taken, and the schema says {sorted(others)}")
    if status == 400 and not own.takes.see(*others):
        actor.stage.complain(f"schema: {request}, a {kind}, was refused, and nothing asks for another type")


async def read_all(actor: "Actor") -> None:
    """Check that accepted messages are stored, and refused ones are not."""
    own = actor.stage_shadow(Checked)
    found = await actor.read_range(TOPIC)
    if found is None:
        return
    names = [each["attributes"]["name"] for each in found]
    refused = [each for each in names if each not in own.stored]
    missing = [each for each, is_sure in own.stored.items() if is_sure and each not in names]
    if refused or missing or len(set(names)) < len(names):
        actor.stage.complain(f"schema: {TOPIC} holds {refused}, which were refused, and not {missing}, or some twice")
