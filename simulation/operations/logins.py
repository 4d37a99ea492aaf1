"""Tokens, roles and members: a revoked token is refused, and a new one is accepted at once."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.clients import SimClient
from simulation.histories.attempts import Outcome
from simulation.operations.shadow import Coming, Possible

if TYPE_CHECKING:
    from simulation.workload import Actor

OWN_TOKEN = ""  # the user's own token, among the named ones
ROLES = ("publisher", "consumer")


@dataclass
class Login:
    """A user of one client: its current and former tokens, and its role."""

    guest: SimClient | None = None
    is_made: bool = False
    role: Possible[str] = field(default_factory=lambda: Possible(ROLES[0]))
    coming: dict[str, Coming] = field(default_factory=dict)  # of named tokens
    good: dict[str, Possible[bool]] = field(default_factory=dict)  # by text
    texts: dict[str, str] = field(default_factory=dict)  # by name of a token


async def change(actor: "Actor") -> None:
    """Create, revoke or renew a token, or change the role; then check which tokens are accepted."""
    own, user = actor.shadow(Login), f"{actor.client.name}-u"
    if not own.is_made:
        await _make(actor, own, user)
    elif actor.chance.random() < 0.3:
        await _give_role(actor, own, user)
    elif actor.chance.random() < 0.3:
        await _refresh(actor, own, user)
    else:
        await _change_named(actor, own, user)
    for text in list(own.good)[-4:]:
        await _try(actor, own, text)


async def _make(actor: "Actor", own: Login, user: str) -> None:
    body = {"projects": [{"project": actor.client.project, "roles": [ROLES[0]]}]}
    found, status = await actor.change(f"/members/{user}", body, allowed=("409",))
    own.is_made = found.is_done or status == 409
    if found.is_done:
        own.texts[OWN_TOKEN] = found.document["token"]
        own.good[own.texts[OWN_TOKEN]] = Possible(True)


async def _give_role(actor: "Actor", own: Login, user: str) -> None:
    role = actor.chance.choice(ROLES)
    body = {"projects": [{"project": actor.client.project, "roles": [role]}]}
    found, _ = await actor.change(f"/members/{user}", body, method="PUT")
    own.role.change(found.facts["outcome"], role)


async def _refresh(actor: "Actor", own: Login, user: str) -> None:
    found, _ = await actor.change(f"/v1/users/{user}:refreshToken", None)
    before = own.texts.get(OWN_TOKEN)
    if before is not None:
        own.good[before].change(found.facts["outcome"], False)
    if found.is_done:
        own.texts[OWN_TOKEN] = found.document["token"]
        own.good[own.texts[OWN_TOKEN]] = Possible(True)


async def _change_named(actor: "Actor", own: Login, user: str) -> None:
    name = f"n{actor.chance.randrange(2)}"
    coming = own.coming.setdefault(name, Coming())
    makes = actor.chance.random() < (0.8 if coming.may_be_gone else 0.2)
    path, method = f"/v1/users/{user}/tokens/{name}", "POST" if makes else "DELETE"
    found, status = await actor.change(path, {} if makes else None, method=method, allowed=("404", "409"))
    outcome = found.facts["outcome"]
    if wrong := coming.settle(outcome, status, is_there=makes):
        actor.stage.complain(f"what comes and goes: {method} {path} was {wrong}")
    is_surely_gone = status == 404 or (makes and found.is_done)
    if name in own.texts and (not makes or is_surely_gone):
        own.good[own.texts[name]].change(Outcome.DONE if is_surely_gone else outcome, False)
    if found.is_done and makes:
        own.texts[name] = found.document["token"]
        own.good[own.texts[name]] = Possible(True)


async def _try(actor: "Actor", own: Login, text: str) -> None:
    if own.guest is None:
        stage = actor.stage
        own.guest = type(actor.client)(
            f"{actor.client.name}-u", stage.node, stage.traffic, actor.client.project, actor.chance, text
        )
    guest = own.guest
    guest.token = text
    _, status = await guest.ask(guest.next_request(), "/topics", None, method="GET", allowed=("401", "403"))
    if status not in (200, 401, 403):
        return
    if not own.good[text].see(status != 401):
        was = "had been revoked" if status != 401 else "had not been revoked"
        actor.stage.complain(f"login: a token of {actor.client.name}-u was answered {status}, and {was}")
    role = ROLES[0] if status == 200 else ROLES[1]
    if status != 401 and not own.role.see(role):
        actor.stage.complain(f"login: {actor.client.name}-u lists topics with status {status}, as if it were a {role}")
