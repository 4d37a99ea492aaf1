"""Carries out a plan: sends the calls of its steps, and notes each that was done."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from ams.client import errors, wire
from ams.client.connection import read_secret
from ams.client.wire import Call, authn
from ams.core.errors import BadSettings
from ams.core.parallel_options import PARALLEL
from ams.core.quotas import QUOTAS
from ams.core.settings import environment
from ams.provisioning.declarations import Ask, Existing, Fields, Note, ResourceKey, ResourceKind, Step, StepSign
from ams.provisioning.document import ALL, ISSUER, PARALLEL_OPTIONS, SECRETS, TOKEN_FILE

ROUNDS, LIST_ROUNDS = 4, 5  # maximum tries of a plan, and of an access list, under concurrent changes


class Tokens(Protocol):
    """Stores new tokens."""

    def keep(self, user: wire.User) -> None:
        """Keep the token of a new user."""
        ...

    def file(self, path: str) -> AbstractContextManager[Callable[[str], None]]:
        """Open the file of a named token, before it is made."""
        ...


@dataclass(slots=True)
class PlanOutcome:
    """Done and failed steps; `overtaken`: others changed the state since it was read, so plan again."""

    done: list[Step] = field(default_factory=list)
    failed: list[tuple[Step, str]] = field(default_factory=list)
    overtaken: bool = False


class Overtaken(Exception):
    """A resource to make exists already, or one to remove is gone."""


def both(ams: Ask, certificates: Ask) -> Ask:
    """Return a function that sends each call to its service."""
    return lambda call: certificates(call) if authn.is_for_authn(call) else ams(call)


def carry_out(steps: list[Step], ask: Ask, tokens: Tokens, plan_again: Callable[[], list[Step]], note: Note) -> None:
    """Do steps in order; plan again after concurrent changes. Raises the first `ClientError`."""
    for _ in range(ROUNDS):
        if not CarryingOut(ask, note, tokens).run(steps).overtaken:
            return
        steps = plan_again()
    if steps:
        raise BadSettings("somebody else changes the same resources again and again: run it again when that has ended")


@dataclass
class CarryingOut:
    """Does steps in order; the first failure is raised.

    With `each_alone` it ends only the steps of the same owner, but for `Unreachable` and `NotAuthenticated`.
    """

    ask: Ask
    note: Note
    tokens: Tokens | None = None
    existing: Existing = field(default_factory=Existing, kw_only=True)
    find_user: Callable[[str], Call[wire.User]] = field(default=wire.get_user, kw_only=True)
    words: Callable[[Step], str] = field(default=str, kw_only=True)
    each_alone: bool = field(default=False, kw_only=True)
    _outside: set[str] = field(default_factory=set, init=False)  # users who could not become members
    _changed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._uuids = dict(self.existing.uuids)

    def run(self, steps: Sequence[Step]) -> PlanOutcome:
        """Do all steps that can be done."""
        outcome = PlanOutcome()
        broken: set[str] = set()
        for number, step in enumerate(steps):
            if step.owner in broken:
                continue
            try:
                self.do(step)
            except Overtaken:
                outcome.overtaken = True
                self.note(f"done by somebody else: {self.words(step)}")
            except errors.ClientError as error:
                if not self.each_alone:
                    self.note(f"{'half' if self._changed else 'not'} done: {self.words(step)}")
                    for left in steps[number + 1 :]:
                        self.note(f"not done: {self.words(left)}")
                if not self.each_alone or isinstance(error, errors.Unreachable | errors.NotAuthenticated):
                    raise
                broken |= {step.owner} - {""}
                outcome.failed.append((step, error.message))
                outcome.overtaken |= isinstance(error, errors.Conflict | errors.NotFound)
            else:
                if self._changed:
                    outcome.done.append(step)
                    self.note(f"done: {self.words(step)}")
        return outcome

    def do(self, step: Step) -> None:
        """Do a step; raise `Overtaken` or a `ClientError`."""
        self._changed = False
        try:
            if step.change is not StepSign.REMOVE:
                make = getattr(self, f"_{step.key.kind.name.lower()}")  # such as `_topic`
                make(step, step.key.project, step.key.name, step.fields)
            elif step.key.kind in _LISTS:
                change_list(self._send, step.key, remove=step.fields["users"])
            else:
                self._send(_REMOVING[step.key.kind](step.key.project, step.key.name))
        except errors.AlreadyExists as error:
            if not self._is_there(step):
                raise
            raise Overtaken from error
        except errors.NotFound as error:
            if step.change is not StepSign.REMOVE:
                raise
            raise Overtaken from error

    def _is_there(self, step: Step) -> bool:
        """Return whether the resource exists now; else another one has its identity, URL or name."""
        if step.key.kind is ResourceKind.IDENTITY:
            found = self.ask(wire.list_bindings(step.key.project)).bindings
        elif step.key.kind is ResourceKind.ISSUER:
            found = self.ask(wire.list_issuers()).issuers
        else:
            return True
        return any(each.name == step.key.name for each in found)

    def _send(self, call: Call[Any]) -> Any:
        answer = self.ask(call)
        self._changed |= call.method != "GET"
        return answer

    def _user(self, step: Step, _parent: str, name: str, said: Fields) -> None:
        details = wire.UserDetails(**said)
        if step.change is StepSign.ADD:
            self._keep(self._send(wire.create_user(name, details)))
        else:
            self._send(wire.update_user(name, details))

    def _keep(self, user: wire.User) -> None:
        # Now, so that it is not lost if a later step fails.
        if self.tokens:
            self.tokens.keep(user)

    def _member(self, step: Step, project: str, name: str, said: Fields) -> None:
        if step.change is StepSign.ALTER:
            self._send(wire.update_member(project, name, said["roles"]))
            return
        try:
            self._uuids[name] = self._create_member(project, name, said)
        except errors.ClientError:
            self._outside.add(name)
            raise

    def _create_member(self, project: str, user: str, said: Fields) -> str:
        """Return the uuid of a new member. An unknown user is made, a known one added: refusals are audited."""
        roles = said["roles"]
        if not (is_there := self._is_user(user)):
            with suppress(errors.AlreadyExists):
                made = self._send(wire.create_member(project, user, roles, email=said.get("email") or None))
                self._keep(made)
                return str(made.uuid)
        try:
            added = self._send(wire.add_member(project, user, roles))
        except errors.Conflict as error:  # a member already
            raise Overtaken from error
        if is_there is False:  # made by another client meanwhile
            raise Overtaken
        return str(added.uuid)

    def _is_user(self, name: str) -> bool | None:
        """Return whether there is such a user; None when the caller may not know, as a project_admin."""
        try:
            self.ask(wire.get_user(name))
        except errors.NotFound:
            return False
        except (errors.NotAllowed, errors.NotAuthenticated):
            return None
        return True

    def _project(self, step: Step, _parent: str, name: str, said: Fields) -> None:
        description = said.get("description", "")
        if step.change is StepSign.ADD:
            self._send(wire.create_project(name, description))
        elif description:
            self._send(wire.update_project(name, description=description))
        if "strictData" in said:
            self._send(wire.update_project(name, strict_data=said["strictData"]))
        if _to_be_set(step, "retention"):
            self._send(wire.modify_project_retention(name, said["retention"]))
        if _to_be_set(step, "quotas"):
            self._send(wire.modify_project_quotas(name, {**dict.fromkeys(QUOTAS), **said["quotas"]}))

    def _schema(self, step: Step, project: str, name: str, said: Fields) -> None:
        parts = {"kind": said.get("type", ""), "attributes": said.get("attributes")}
        send = wire.create_schema if step.change is StepSign.ADD else wire.update_schema
        self._send(send(project, name, said.get("schema"), **parts))

    def _topic(self, step: Step, project: str, name: str, said: Fields) -> None:
        if step.change is StepSign.ADD:
            self._send(wire.create_topic(project, name, schema=said.get("schema", "")))
        elif said.get("schema"):
            self._send(wire.attach_schema(project, name, said["schema"]))
        elif _to_be_set(step, "schema"):
            self._send(wire.detach_schema(project, name))
        if _to_be_set(step, "retention"):
            self._send(wire.modify_topic_retention(project, name, said["retention"]))
        if _to_be_set(step, "access"):
            self._send(wire.modify_topic_acl(project, name, said["access"]))

    def _subscription(self, step: Step, project: str, name: str, said: Fields) -> None:
        if step.change is StepSign.ADD:
            self._new_subscription(project, name, said)
            return
        if "ackDeadline" in said:
            self._send(wire.modify_ack_deadline(project, name, said["ackDeadline"]))
        if options := _parallel_options(said):
            self._send(wire.update_subscription(project, name, msgspec.convert(options, wire.SubscriptionChanges)))
        if "access" in said:
            self._send(wire.modify_subscription_acl(project, name, said["access"]))
        if "push" in said:
            # Last: the service then puts its push worker on the access list (HTTP contract 13.3).
            self._send(wire.modify_push_config(project, name, _push_config(said)))

    def _new_subscription(self, project: str, name: str, said: Fields) -> None:
        deadline, access, push = said.get("ackDeadline"), said.get("access"), _push_config(said)
        # With its push configuration, or not at all: as a pull subscription it would be another (HTTP contract 9.3).
        is_parallel = said.get("type") == PARALLEL
        options = msgspec.convert(_parallel_options(said), wire.ParallelOptions) if is_parallel else None
        topic = said["topic"]
        self._send(wire.create_subscription(project, name, topic, ack_deadline=deadline, push=push, parallel=options))
        if deadline == 0:
            # At creation the service reads 0 as nothing said (HTTP contract 9.3).
            self._send(wire.modify_ack_deadline(project, name, 0))
        if access and push:
            # The service has put its push worker on the list, where it must stay (HTTP contract 13.5).
            there = self._send(wire.get_subscription_acl(project, name))
            access = dict.fromkeys((*access, *there.authorized_users))
        if access:
            self._send(wire.modify_subscription_acl(project, name, list(access)))

    def _issuer(self, step: Step, _parent: str, name: str, said: Fields) -> None:
        said = {**said, **secrets(said)}
        if "roles" in said:
            rules: dict[tuple[str, str], list[str]] = {}
            for text in said["roles"]:
                project, role, entitlement = text.split("=", 2)  # the entitlement may hold any sign
                rules.setdefault((entitlement, project), []).append(role)
            said["roles"] = [wire.RoleRule(entitlement=each[0], project=each[1], roles=rules[each]) for each in rules]
        if step.change is StepSign.ADD:
            self._send(wire.create_issuer(wire.Issuer(name=name, **said)))
        else:
            there = self._send(wire.get_issuer(name).with_version())
            before = {each: getattr(there.value, each) for each in ISSUER}
            self._send(wire.update_issuer(wire.Issuer(name=name, **(before | said))).if_match(there.version))

    def _identity(self, step: Step, user: str, name: str, said: Fields) -> None:
        if step.change is StepSign.ALTER:
            self._send(wire.delete_binding(user, name))
        self._send(wire.create_binding(user, name, said["issuer"], said["subject"]))

    def _token(self, step: Step, user: str, name: str, said: Fields) -> None:
        rights = None
        if said.get("rights", ALL) != ALL:
            pairs = (each.partition("=") for each in said["rights"])
            rights = [wire.Right(action=action, resource=resource) for action, _, resource in pairs]
        call = wire.create_token(user, name, expires_on=said.get("expires_on", ""), rights=rights)
        assert self.tokens is not None
        with self.tokens.file(said[TOKEN_FILE]) as keep:
            if step.change is StepSign.ALTER:
                # The service checks last whether the name is taken. So it refuses a bad new token here, while the
                # one in use is still good.
                with suppress(errors.Conflict):
                    keep(self._send(call).token)
                    return
                with suppress(errors.NotFound):  # revoked by another client
                    self._send(wire.revoke_token(user, name))
            keep(self._send(call).token)

    def _service_type(self, step: Step, _parent: str, name: str, said: Fields) -> None:
        if step.change is StepSign.ADD:
            rest = {each: value for each, value in said.items() if each not in ("hosts", "type")}
            self._send(authn.create_service_type(name, said["hosts"], kind=said.get("type", "ams"), **rest))
        else:
            self._send(authn.update_service_type(name, authn.ServiceTypeFields(**said)))

    def _auth_method(self, step: Step, service_type: str, name: str, said: Fields) -> None:
        said = {**said, **secrets(said)}
        if step.change is StepSign.ADD:
            self._send(authn.create_auth_method(service_type, name, said.pop("port"), **said))
        else:
            self._send(authn.update_auth_method(service_type, name, authn.AuthMethodFields(**said)))

    def _binding(self, step: Step, _parent: str, name: str, said: Fields) -> None:
        said = dict(said)
        if "service_type" in said:
            said["service_uuid"] = self._send(authn.get_service_type(said.pop("service_type"))).uuid
        if "user" in said:
            user = said.pop("user")
            if user not in self._uuids:  # looked up now: an earlier step may have made the user
                self._uuids[user] = self._send(self.find_user(user)).uuid
            said["unique_key"] = self._uuids[user]
        if step.change is StepSign.ADD:
            self._send(authn.create_binding(name, **said))
            return
        there = self.existing.fields.get(step.key, {})
        if changed := {each: value for each, value in said.items() if value != there.get(each)}:
            self._send(authn.update_binding(name, authn.BindingFields(**changed)))

    def _publishers(self, step: Step, _parent: str, name: str, said: Fields) -> None:
        if users := [user for user in said["users"] if user not in self._outside]:
            change_list(self._send, step.key, add=users)

    _consumers = _publishers


_REMOVING: Mapping[ResourceKind, Callable[[str, str], Call[Any]]] = {
    ResourceKind.MEMBER: wire.remove_member,
    ResourceKind.SCHEMA: wire.delete_schema,
    ResourceKind.TOPIC: wire.delete_topic,
    ResourceKind.SUBSCRIPTION: wire.delete_subscription,
    ResourceKind.ISSUER: lambda _, name: wire.delete_issuer(name),
    ResourceKind.IDENTITY: wire.delete_binding,
    ResourceKind.TOKEN: wire.revoke_token,
    ResourceKind.AUTH_METHOD: authn.delete_auth_method,
    ResourceKind.BINDING: lambda _, name: authn.delete_binding(name),
}
_LISTS = {
    ResourceKind.PUBLISHERS: (wire.get_topic_acl, wire.modify_topic_acl),
    ResourceKind.CONSUMERS: (wire.get_subscription_acl, wire.modify_subscription_acl),
}


def secrets(fields: Fields) -> dict[str, Any]:
    """Return the fields that are secrets, read from their files and variables; raise `BadSettings`, `BadConnection`."""
    found: dict[str, Any] = {name: fields[name] for name in SECRETS if name in fields}
    return {
        name: {each: _secret(where) for each, where in said.items()} if name == "headers" else _secret(said)
        for name, said in found.items()
    }


def _secret(where: Mapping[str, str]) -> str:
    if "file" in where:
        found, missing = read_secret(where["file"], "secret"), f"secret file {where['file']} is empty"
    else:
        found = environment().get(where["env"], "")
        missing = f"the variable {where['env']}, which holds a secret, is not set"
    if not found:
        raise BadSettings(missing)
    return found


def _push_config(said: Fields) -> wire.PushConfig | None:
    push = said.get("push")
    return msgspec.convert(push, wire.PushConfig) if push else None


def _parallel_options(said: Fields) -> dict[str, Any]:
    return {name: None if said[name] in ({}, "") else said[name] for name in PARALLEL_OPTIONS if name in said}


def _to_be_set(step: Step, field: str) -> bool:
    # A new resource has nothing set, which need not be said.
    return field in step.fields and bool(step.change is StepSign.ALTER or step.fields[field])


def change_list(ask: Ask, key: ResourceKey, *, add: Collection[str] = (), remove: Collection[str] = ()) -> None:
    """Add users to and remove users from an access list that others change too. Raises a `ClientError`.

    It only reads and replaces whole lists, which any AMS can do (authn contract 15, A26). The list is read, replaced
    and read again; after a concurrent change it is done again. Our service refuses to replace a list that changed since
    it was read; at others the first of two changes can be lost until the next run.
    """
    get, modify = _LISTS[key.kind]
    for _ in range(LIST_ROUNDS):
        acl, version = ask(get(key.project, key.name).with_version())
        there = acl.authorized_users
        if _is_so(there, add, remove):
            return
        users = list(dict.fromkeys([*(user for user in there if user not in remove), *add]))
        with suppress(errors.ChangedMeanwhile):
            try:
                ask(modify(key.project, key.name, users).if_match(version))
            except errors.NotFound:  # the list holds users who have left the project
                staying = [user for user in users if user in add or _is_member(ask, key.project, user)]
                if staying == users:
                    raise
                ask(modify(key.project, key.name, staying).if_match(version))
    if not _is_so(ask(get(key.project, key.name)).authorized_users, add, remove):
        raise errors.Unavailable(f"others change the access list of {key} all the time")


def _is_so(there: Collection[str], add: Collection[str], remove: Collection[str]) -> bool:
    return set(add) <= set(there) and not set(remove) & set(there)


def _is_member(ask: Ask, project: str, user: str) -> bool:
    with suppress(errors.NotFound):
        ask(wire.get_member(project, user))
        return True
    return False
