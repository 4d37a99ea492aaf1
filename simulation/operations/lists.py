"""An access list that many clients read and write back by its version: no update is lost."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.histories.attempts import Outcome
from simulation.operations.shadow import Possible

if TYPE_CHECKING:
    from simulation.workload import Actor

PATH = "/topics/jobs"


@dataclass
class Membership:
    """Possible states of one member that a client adds and removes."""

    listed: Possible[bool] = field(default_factory=lambda: Possible(False))
    is_made: bool = False


async def change(actor: "Actor") -> None:
    """Read the list, and write it back with or without this client's own member."""
    own, name = actor.shadow(Membership), f"{actor.client.name}-m"
    if not own.is_made:
        roles = {"project": actor.client.project, "roles": ["publisher"]}
        found, status = await actor.change(f"/members/{name}", {"projects": [roles]}, allowed=("409",))
        own.is_made = found.is_done or status == 409
        return
    shown, _ = await actor.change(f"{PATH}:acl", None, method="GET")
    if not shown.is_done:
        return
    version, names = actor.client.etag, shown.document["authorized_users"]
    if not own.listed.see(name in names):
        said = "is not on it any more" if name not in names else "is on it again"
        actor.stage.complain(f"list: {name} {said}, though nobody else changes that; it has {names}")
    puts = name not in names
    if actor.chance.random() < 0.3:
        found, _ = await actor.change(f"{PATH}:changeAcl", {"add" if puts else "remove": [name]})
    else:
        after = [*names, name] if puts else [each for each in names if each != name]
        found, _ = await actor.change(
            f"{PATH}:modifyAcl", {"authorized_users": after}, allowed=("412",), if_match=version
        )
    if found.facts["outcome"] is not Outcome.REFUSED:
        own.listed.change(found.facts["outcome"], puts)
