"""Carries out a plan: sends the calls of its steps, and says what was done."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from ams.client import wire
from ams.client.connection import read_secret
from ams.client.errors import (
    AlreadyExists,
    ChangedMeanwhile,
    ClientError,
    Conflict,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Unavailable,
    Unreachable,
)
from ams.client.wire import Call, authn
from ams.core.errors import BadSettings
from ams.core.quotas import QUOTAS
from ams.core.settings import environment
from ams.provisioning import parallel
from ams.provisioning.declared import NOTHING, SECRETS, Ask, Change, Existing, Fields, Key, Kind, Step
from ams.provisioning.fields import ALL, ISSUER, TOKEN_FILE

ROUNDS = 4
"""How often a plan is made at most while others change the same."""
LIST_ROUNDS = 5
"""How often one access list is."""


class Tokens(Protocol):
    """Where tokens go that are made on the way."""

    def keep(self, user: wire.User) -> None:
        """Keep the token of a new user."""
        ...

    def file(self, path: str) -> AbstractContextManager[Callable[[str], None]]:
        """Open the file of a named token, before it is made."""
        ...


@dataclass(slots=True)
class Outcome:
    """What came of a plan."""

    done: list[Step] = field(default_factory=list)
    failed: list[tuple[Step, str]] = field(default_factory=list)
    """Steps that could not be done, and why."""
    overtaken: bool = False
    """Whether a step met what others have changed since the state was read, so that planning again may help."""


class Overtaken(Exception):
    """What was to be made is there, or what was to be removed is gone."""


def both(ams: Ask, certificates: Ask) -> Ask:
    """Return what sends each call to the one of both services it is for."""
    return lambda call: certificates(call) if authn.is_for_authn(call) else ams(call)


def carry_out(
    steps: Sequence[Step],
    ask: Ask,
    tokens: Tokens,
    plan_again: Callable[[], Sequence[Step]],
    note: Callable[[str], None],
) -> None:
    """Carry out steps in order; when one fails, say which are half done or not done, and raise its `ClientError`.

    Run again, the plan holds what is left. What others made or removed at the same time does not end it: the
    rest is done, and then what still differs.
    """
    for _ in range(ROUNDS):
        if not CarryingOut(ask, note, tokens).run(steps).overtaken:
            return
        steps = plan_again()
    if steps:
        raise BadSettings("somebody else changes the same resources again and again: run it again when that has ended")


class CarryingOut:
    """Does steps in order.

    `each_alone` says that a step that fails ends only those of the same owner, and stands in the outcome: for
    provisioning, where `Unreachable` and `NotAuthenticated` alone end everything, as they would be met again at each
    step. Otherwise the first failure is raised.
    """

    def __init__(
        self,
        ask: Ask,
        note: Callable[[str], None],
        tokens: Tokens | None = None,
        *,
        existing: Existing = NOTHING,
        find_user: Callable[[str], Call[wire.User]] = wire.get_user,
        words: Callable[[Step], str] = str,
        each_alone: bool = False,
    ) -> None:
        self._ask = ask
        self._note = note
        self._tokens = tokens
        self._existing = existing
        self._find_user = find_user
        self._words = words
        self._each_alone = each_alone
        self._uuids = dict(existing.uuids)
        self._outside: set[str] = set()
        """Users who should have joined and could not."""
        self._changed = False

    def run(self, steps: Sequence[Step]) -> Outcome:
        """Do all that can be done."""
        outcome = Outcome()
        broken: set[str] = set()
        for number, step in enumerate(steps):
            if step.owner in broken:
                continue
            try:
                self.do(step)
            except Overtaken:
                outcome.overtaken = True
                self._note(f"done by somebody else: {self._words(step)}")
            except ClientError as error:
                if not self._each_alone:
                    self._note_left(steps[number:])
                if not self._each_alone or isinstance(error, Unreachable | NotAuthenticated):
                    raise
                broken |= {step.owner} - {""}
                outcome.failed.append((step, error.message))
                outcome.overtaken |= isinstance(error, Conflict | NotFound)
            else:
                if self._changed:
                    outcome.done.append(step)
                    self._note(f"done: {self._words(step)}")
        return outcome

    def _note_left(self, steps: Sequence[Step]) -> None:
        self._note(f"{'half' if self._changed else 'not'} done: {self._words(steps[0])}")
        for left in steps[1:]:
            self._note(f"not done: {self._words(left)}")

    def do(self, step: Step) -> None:
        """Do a step; raise `Overtaken` or a `ClientError`."""
        self._changed = False
        try:
            if step.change is Change.REMOVE:
                self._remove(step)
            else:
                self._MAKING[step.key.kind](self, step)
        except AlreadyExists as error:
            if not self._is_there(step):
                raise
            raise Overtaken from error
        except NotFound as error:
            if step.change is not Change.REMOVE:
                raise
            raise Overtaken from error

    def _is_there(self, step: Step) -> bool:
        """Whether what was to be made is there now: else it is an identity, a URL or a name that another one has."""
        found: Any
        if step.key.kind is Kind.IDENTITY:
            found = self._ask(wire.list_bindings(step.key.project)).bindings
        elif step.key.kind is Kind.ISSUER:
            found = self._ask(wire.list_issuers()).issuers
        else:
            return True
        return any(each.name == step.key.name for each in found)

    def _send(self, call: Call[Any]) -> Any:
        answer = self._ask(call)
        self._changed |= call.method != "GET"
        return answer

    def _user(self, step: Step) -> None:
        name, details = step.key.name, wire.UserDetails(**step.fields)
        if step.change is Change.ADD:
            self._keep(self._send(wire.create_user(name, details)))
        else:
            self._send(wire.update_user(name, details))

    def _keep(self, user: wire.User) -> None:
        # At once, so that it is not lost when a later step fails.
        if self._tokens:
            self._tokens.keep(user)

    def _member(self, step: Step) -> None:
        """Make a user a member; one whom the service does not know yet is made. A project_admin may do both."""
        project, user, roles = step.key.project, step.key.name, step.fields["roles"]
        if step.change is Change.ALTER:
            self._send(wire.update_member(project, user, roles))
            return
        try:
            self._uuids[user] = self._joined(step)
        except ClientError:
            self._outside.add(user)
            raise

    def _joined(self, step: Step) -> str:
        """Return the uuid of a new member.

        A user who is not there is made, and only one who is there is added: the audit log has each refusal.
        """
        project, user, roles = step.key.project, step.key.name, step.fields["roles"]
        is_there = self._is_user(user)
        if not is_there:
            with suppress(AlreadyExists):
                made = self._send(wire.create_member(project, user, roles, email=step.fields.get("email") or None))
                self._keep(made)
                return str(made.uuid)
        try:
            added = self._send(wire.add_member(project, user, roles))
        except Conflict as error:  # a member already
            raise Overtaken from error
        if is_there is False:  # made by another client meanwhile
            raise Overtaken
        return str(added.uuid)

    def _is_user(self, name: str) -> bool | None:
        """Whether there is such a user; None when the caller may not know, as a project_admin."""
        try:
            self._ask(wire.get_user(name))
        except NotFound:
            return False
        except (NotAllowed, NotAuthenticated):
            return None
        return True

    def _project(self, step: Step) -> None:
        name, description = step.key.name, step.fields.get("description", "")
        if step.change is Change.ADD:
            self._send(wire.create_project(name, description))
        elif description:
            self._send(wire.update_project(name, description=description))
        if "strictData" in step.fields:
            self._send(wire.update_project(name, strict_data=step.fields["strictData"]))
        if _to_be_set(step, "retention"):
            self._send(wire.modify_project_retention(name, step.fields["retention"]))
        if _to_be_set(step, "quotas"):
            self._send(wire.modify_project_quotas(name, {**dict.fromkeys(QUOTAS), **step.fields["quotas"]}))

    def _schema(self, step: Step) -> None:
        project, name, said = step.key.project, step.key.name, step.fields
        parts = {"kind": said.get("type", ""), "attributes": said.get("attributes")}
        send = wire.create_schema if step.change is Change.ADD else wire.update_schema
        self._send(send(project, name, said.get("schema"), **parts))

    def _topic(self, step: Step) -> None:
        project, name, said = step.key.project, step.key.name, step.fields
        if step.change is Change.ADD:
            self._send(wire.create_topic(project, name, schema=said.get("schema", "")))
        elif said.get("schema"):
            self._send(wire.attach_schema(project, name, said["schema"]))
        elif _to_be_set(step, "schema"):
            self._send(wire.detach_schema(project, name))
        if _to_be_set(step, "retention"):
            self._send(wire.modify_topic_retention(project, name, said["retention"]))
        if _to_be_set(step, "access"):
            self._send(wire.modify_topic_acl(project, name, said["access"]))

    def _subscription(self, step: Step) -> None:
        if step.change is Change.ADD:
            self._new_subscription(step)
            return
        project, name, said = step.key.project, step.key.name, step.fields
        if "ackDeadline" in said:
            self._send(wire.modify_ack_deadline(project, name, said["ackDeadline"]))
        changes = parallel.changes(said)
        if changes is not None:
            self._send(wire.update_subscription(project, name, changes))
        if "access" in said:
            self._send(wire.modify_subscription_acl(project, name, said["access"]))
        if "push" in said:
            # Last: the service then puts its push worker on the access list (HTTP contract 13.3).
            self._send(wire.modify_push_config(project, name, _push_config(said)))

    def _new_subscription(self, step: Step) -> None:
        project, name, said = step.key.project, step.key.name, step.fields
        deadline, access, push = said.get("ackDeadline"), said.get("access"), _push_config(said)
        # With its push configuration, or not at all: as a pull subscription it would be another (HTTP contract 9.3).
        call = wire.create_subscription(
            project, name, said["topic"], ack_deadline=deadline, push=push, parallel=parallel.made(said)
        )
        self._send(call)
        if deadline == 0:
            # At creation the service reads 0 as nothing said (HTTP contract 9.3).
            self._send(wire.modify_ack_deadline(project, name, 0))
        if access and push:
            # The service has put its push worker on the list, where it must stay (HTTP contract 13.5).
            there = self._send(wire.get_subscription_acl(project, name))
            access = dict.fromkeys((*access, *there.authorized_users))
        if access:
            self._send(wire.modify_subscription_acl(project, name, list(access)))

    def _issuer(self, step: Step) -> None:
        name, said = step.key.name, {**step.fields, **secrets(step.fields)}
        if "roles" in said:
            said["roles"] = _rules(said["roles"])
        if step.change is Change.ADD:
            self._send(wire.create_issuer(wire.Issuer(name=name, **said)))
        else:
            there = self._send(wire.get_issuer(name).with_version())
            before = {each: getattr(there.value, each) for each in ISSUER}
            self._send(wire.update_issuer(wire.Issuer(name=name, **(before | said))).if_match(there.version))

    def _identity(self, step: Step) -> None:
        user, name = step.key.project, step.key.name
        if step.change is Change.ALTER:
            self._send(wire.delete_binding(user, name))
        self._send(wire.create_binding(user, name, step.fields["issuer"], step.fields["subject"]))

    def _token(self, step: Step) -> None:
        """Make a token, in place of one that is there when it is to be altered, and keep it where the files say."""
        user, name, said = step.key.project, step.key.name, step.fields
        rights = None if said.get("rights", ALL) == ALL else [_right(each) for each in said["rights"]]
        call = wire.create_token(user, name, expires_on=said.get("expires_on", ""), rights=rights)
        assert self._tokens is not None
        with self._tokens.file(said[TOKEN_FILE]) as keep:
            if step.change is Change.ALTER:
                # That the name is taken is the last thing the service looks for: what is wrong with the token it says
                # now, while the one that is in use is still good.
                with suppress(Conflict):
                    keep(self._send(call).token)
                    return
                with suppress(NotFound):  # revoked by another client
                    self._send(wire.revoke_token(user, name))
            keep(self._send(call).token)

    def _service_type(self, step: Step) -> None:
        said = dict(step.fields)
        if step.change is Change.ADD:
            hosts, kind = said.pop("hosts"), said.pop("type", "ams")
            self._send(authn.create_service_type(step.key.name, hosts, kind=kind, **said))
        else:
            self._send(authn.update_service_type(step.key.name, authn.ServiceTypeFields(**said)))

    def _auth_method(self, step: Step) -> None:
        service_type, host = step.key.project, step.key.name
        said = {**step.fields, **secrets(step.fields)}
        if step.change is Change.ADD:
            self._send(authn.create_auth_method(service_type, host, said.pop("port"), **said))
        else:
            self._send(authn.update_auth_method(service_type, host, authn.AuthMethodFields(**said)))

    def _binding(self, step: Step) -> None:
        said = dict(step.fields)
        if "service_type" in said:
            said["service_uuid"] = self._send(authn.get_service_type(said.pop("service_type"))).uuid
        if "user" in said:
            said["unique_key"] = self._uuid(said.pop("user"))
        if step.change is Change.ADD:
            self._send(authn.create_binding(step.key.name, **said))
            return
        there = self._existing.fields.get(step.key, {})
        said = {name: value for name, value in said.items() if value != there.get(name)}
        if said:
            self._send(authn.update_binding(step.key.name, authn.BindingFields(**said)))

    def _uuid(self, user: str) -> str:
        # Asked for now, as a step before may have made the user.
        if user not in self._uuids:
            self._uuids[user] = self._send(self._find_user(user)).uuid
        return self._uuids[user]

    def _entries(self, step: Step) -> None:
        users = [user for user in step.fields["users"] if user not in self._outside]
        if users:
            change_list(self._send, step.key, add=users)

    def _remove(self, step: Step) -> None:
        if step.key.kind in _LISTS:
            change_list(self._send, step.key, remove=step.fields["users"])
        else:
            self._send(_REMOVING[step.key.kind](step.key.project, step.key.name))

    _MAKING: Mapping[Kind, Callable[["CarryingOut", Step], None]] = {
        Kind.USER: _user,
        Kind.PROJECT: _project,
        Kind.MEMBER: _member,
        Kind.SCHEMA: _schema,
        Kind.TOPIC: _topic,
        Kind.PUBLISHERS: _entries,
        Kind.SUBSCRIPTION: _subscription,
        Kind.CONSUMERS: _entries,
        Kind.ISSUER: _issuer,
        Kind.IDENTITY: _identity,
        Kind.TOKEN: _token,
        Kind.SERVICE_TYPE: _service_type,
        Kind.AUTH_METHOD: _auth_method,
        Kind.BINDING: _binding,
    }


_REMOVING: Mapping[Kind, Callable[[str, str], Call[Any]]] = {
    Kind.MEMBER: wire.remove_member,
    Kind.SCHEMA: wire.delete_schema,
    Kind.TOPIC: wire.delete_topic,
    Kind.SUBSCRIPTION: wire.delete_subscription,
    Kind.ISSUER: lambda _, name: wire.delete_issuer(name),
    Kind.IDENTITY: wire.delete_binding,
    Kind.TOKEN: wire.revoke_token,
    Kind.AUTH_METHOD: authn.delete_auth_method,
    Kind.BINDING: lambda _, name: authn.delete_binding(name),
}
_LISTS = {
    Kind.PUBLISHERS: (wire.get_topic_acl, wire.modify_topic_acl),
    Kind.CONSUMERS: (wire.get_subscription_acl, wire.modify_subscription_acl),
}


def secrets(fields: Fields) -> dict[str, Any]:
    """Return the fields that are secrets, read from where a file of declarations says they are.

    Raises `BadSettings` or `BadConnection` when one is not there.
    """
    found: dict[str, Any] = {name: fields[name] for name in SECRETS if name in fields}
    return {
        name: {each: _secret(where) for each, where in said.items()} if name == "headers" else _secret(said)
        for name, said in found.items()
    }


def _secret(where: Mapping[str, str]) -> str:
    if "file" in where:
        found = read_secret(where["file"], "secret")
        if not found:
            raise BadSettings(f"secret file {where['file']} is empty")
        return found
    found = environment().get(where["env"], "")
    if not found:
        raise BadSettings(f"the variable {where['env']}, which holds a secret, is not set")
    return found


def _push_config(said: Fields) -> wire.PushConfig | None:
    push = said.get("push")
    return msgspec.convert(push, wire.PushConfig) if push else None


def _to_be_set(step: Step, field: str) -> bool:
    """Whether a call must set this field: a new resource has nothing set, which need not be said."""
    return field in step.fields and bool(step.change is Change.ALTER or step.fields[field])


def _right(text: str) -> wire.Right:
    action, _, resource = text.partition("=")
    return wire.Right(action=action, resource=resource)


def _rules(texts: Sequence[str]) -> list[wire.RoleRule]:
    """Return rules of PROJECT=ROLE=ENTITLEMENT; the entitlement may hold any sign."""
    roles: dict[tuple[str, str], list[str]] = {}
    for text in texts:
        project, role, entitlement = text.split("=", 2)
        roles.setdefault((entitlement, project), []).append(role)
    return [wire.RoleRule(entitlement=each, project=project, roles=roles[each, project]) for each, project in roles]


def change_list(ask: Ask, key: Key, *, add: Collection[str] = (), remove: Collection[str] = ()) -> None:
    """Put users on an access list that others change too, take others off it, and leave all others where they are.

    Any AMS can read a whole list and replace it, and no other verb is needed (authn contract 15, A26). So it is read at
    the last moment, replaced with what was on it then, and read again: when another list came in between, it is done
    again on top of theirs. Ours refuses to replace a list that was changed meanwhile. At an AMS that gives no versions,
    a list read by two at the same moment can lose the change of the first: another run of either puts it back. Raises a
    `ClientError`, `Unavailable` when others replace the list again and again.
    """
    get, modify = _LISTS[key.kind]
    for _ in range(LIST_ROUNDS):
        acl, version = ask(get(key.project, key.name).with_version())
        there = acl.authorized_users
        if _is_so(there, add, remove):
            return
        users = list(dict.fromkeys([*(user for user in there if user not in remove), *add]))
        with suppress(ChangedMeanwhile):
            try:
                ask(modify(key.project, key.name, users).if_match(version))
            except NotFound:  # the list holds users who have left the project
                staying = [user for user in users if user in add or _is_member(ask, key.project, user)]
                if staying == users:
                    raise
                ask(modify(key.project, key.name, staying).if_match(version))
    if not _is_so(ask(get(key.project, key.name)).authorized_users, add, remove):
        raise Unavailable(f"others change the access list of {key} all the time")


def _is_so(there: Collection[str], add: Collection[str], remove: Collection[str]) -> bool:
    return set(add) <= set(there) and not set(remove) & set(there)


def _is_member(ask: Ask, project: str, user: str) -> bool:
    try:
        ask(wire.get_member(project, user))
    except NotFound:
        return False
    return True
