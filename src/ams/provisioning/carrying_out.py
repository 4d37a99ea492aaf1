"""Carries out a plan. What goes wrong with one endpoint ends that one's steps, and the others go on (A24)."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ams.client import wire
from ams.client.errors import AlreadyExists, ClientError, Conflict, NotAuthenticated, NotFound, Unreachable
from ams.client.wire import authn
from ams.provisioning.access_lists import change_list
from ams.provisioning.plan import (
    Allow,
    Alter,
    Bind,
    Disallow,
    Join,
    Leave,
    MakeSubscription,
    MakeTopic,
    Step,
    Unbind,
)
from ams.provisioning.state import Ask, Place, State

ACK_DEADLINE_SECONDS = 100
"""Of the subscription of an endpoint (step 11b)."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that could not be done."""

    step: Step
    text: str


@dataclass(slots=True)
class Outcome:
    """What came of a plan."""

    done: list[Step] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    overtaken: bool = False
    """Whether a step met what had changed since the state was read, so that planning again may help."""


class CarryingOut:
    """Does steps in order; `tell` hears of each that was done. Never raises for a single refusal.

    Raises `Unreachable` and `NotAuthenticated`, which would be met again at each step.
    """

    def __init__(
        self, ams: Ask, certificates: Ask, place: Place, state: State, role: str, tell: Callable[[Step], None]
    ) -> None:
        self._ams = ams
        self._authn = certificates
        self._place = place
        self._bindings = state.bindings
        self._uuids = {name: member.uuid for name, member in state.members.items()}
        self._role = role
        self._tell = tell
        self._broken: set[str] = set()
        self._outside: set[str] = set()
        """Users who should have joined and could not."""

    def run(self, steps: Sequence[Step]) -> Outcome:
        """Do all that can be done."""
        outcome = Outcome()
        for step in steps:
            if step.endpoint and step.endpoint in self._broken:
                continue
            try:
                changed = self._do(step)
            except (Unreachable, NotAuthenticated):
                raise
            except ClientError as error:
                self._broken.add(step.endpoint)
                outcome.failed.append(Failure(step, error.message))
                outcome.overtaken |= isinstance(error, Conflict | NotFound)
                continue
            if changed:
                outcome.done.append(step)
                self._tell(step)
        return outcome

    def _do(self, step: Step) -> bool:
        """Do a step; return whether anything had to be changed."""
        changed: bool = self._DOING[type(step)](self, step)
        return changed

    def _join(self, step: Join) -> bool:
        # The answer holds a token when the user is new. Whoever has the certificate gets it, and nobody else.
        self._outside.add(step.user)
        self._uuids[step.user] = self._joined(step).uuid
        self._outside.remove(step.user)
        return True

    def _joined(self, step: Join) -> wire.User:
        project, roles = self._place.project, [self._role]
        try:
            return self._ams(wire.create_member(project, step.user, roles, email=step.email or None))
        except Conflict:
            pass
        try:
            return self._ams(wire.add_member(project, step.user, roles))
        except Conflict:
            return self._ams(wire.get_member(project, step.user))

    def _bind(self, step: Bind) -> bool:
        place = self._place
        uuid = self._uuids[step.user]
        self._authn(authn.create_binding(step.binding, place.service_uuid, place.host, step.dn, uuid))
        return True

    def _alter(self, step: Alter) -> bool:
        uuid = self._uuids[step.user] if step.user else ""
        if not step.dn and uuid == self._bindings[step.binding].uuid:
            return False  # a user of the service who was no member here
        self._authn(authn.update_binding(step.binding, auth_identifier=step.dn or None, unique_key=uuid or None))
        return True

    def _make_topic(self, step: MakeTopic) -> bool:
        try:
            self._ams(wire.create_topic(self._place.project, step.topic))
        except AlreadyExists:
            return False
        return True

    def _make_subscription(self, step: MakeSubscription) -> bool:
        project, seconds = self._place.project, ACK_DEADLINE_SECONDS
        self._ams(wire.create_subscription(project, step.subscription, step.topic, ack_deadline=seconds))
        return True

    def _allow(self, step: Allow) -> bool:
        users = [user for user in step.users if user not in self._outside]
        if users:
            change_list(self._ams, self._place.project, step.kind, step.name, add=users)
        return bool(users)

    def _disallow(self, step: Disallow) -> bool:
        change_list(self._ams, self._place.project, step.kind, step.name, remove=step.users)
        return True

    def _unbind(self, step: Unbind) -> bool:
        self._authn(authn.delete_binding(step.binding))
        return True

    def _leave(self, step: Leave) -> bool:
        self._ams(wire.remove_member(self._place.project, step.user))
        return True

    _DOING: dict[type[Step], Callable[..., Any]] = {  # noqa: RUF012  # a constant
        Join: _join,
        Bind: _bind,
        Alter: _alter,
        MakeTopic: _make_topic,
        MakeSubscription: _make_subscription,
        Allow: _allow,
        Disallow: _disallow,
        Unbind: _unbind,
        Leave: _leave,
    }


def cells(step: Step) -> tuple[str, str, str]:
    """Return what a step does, to what, and the rest of it, for people."""
    match step:
        case Join(user=user, email=email):
            return "join", user, email
        case Bind(binding=binding, dn=dn):
            return "bind", binding, dn
        case Alter(binding=binding, dn=dn, user=user):
            return "alter", binding, ", ".join(each for each in (dn, f"user {user}" if user else "") if each)
        case MakeTopic(topic=topic):
            return "make", f"topic {topic}", ""
        case MakeSubscription(subscription=subscription, topic=topic):
            return "make", f"subscription {subscription}", f"to topic {topic}"
        case Allow(kind=kind, name=name, users=users):
            return "allow", f"{kind} {name}", ", ".join(users)
        case Disallow(kind=kind, name=name, users=users):
            return "disallow", f"{kind} {name}", ", ".join(users)
        case Unbind(binding=binding):
            return "unbind", binding, ""
        case Leave(user=user):
            return "leave", user, ""
    raise AssertionError(f"no step: {type(step).__name__}")


def told(step: Step) -> str:
    """Return a step in one line."""
    does, what, rest = cells(step)
    return f"{does} {what}" + (f" ({rest})" if rest else "")


def as_object(step: Step) -> dict[str, Any]:
    """Return a step as programs read it: what it does, and what is not empty of it."""
    does, _, _ = cells(step)
    return {"step": does} | {name: value for name, value in dataclasses.asdict(step).items() if value}
