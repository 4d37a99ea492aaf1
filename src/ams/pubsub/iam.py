"""The service IAMPolicy: access lists of topics and subscriptions as policies, and permission tests.

Only `roles/pubsub.publisher` of a topic and `roles/pubsub.subscriber` of a subscription have an effect, for members
`user:NAME` of the project. Everything else is stored and returned without effect. Roles of users in a project are set
by the HTTP API only.
"""

import itertools
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple

from ams.access.admission import Caller
from ams.access.permissions import CONSUMER, PUBLISHER
from ams.core import errors
from ams.core.iam import USER, Bindings, Policy, RoleBinding
from ams.core.names import UserId
from ams.core.versions import ANY_VERSION, Precondition, version_of
from ams.pubsub import protos as pb
from ams.pubsub.calls import PubsubCall
from ams.pubsub.errors import NotSupported
from ams.pubsub.fields import SCHEMAS, SNAPSHOTS, SUBSCRIPTIONS, TOPICS, PubsubName
from ams.pubsub.protos import Message
from ams.service.lookup import require_found
from ams.service.schemas import Schemas
from ams.service.subscription_offsets import Snapshots
from ams.service.subscriptions import Subscriptions
from ams.service.topics import Topics
from ams.storage.registry.registry import Registry

NAME = "google.iam.v1.IAMPolicy"
_CONDITIONS = 3  # the version of policies whose bindings may have conditions
_WITH_CONDITION = "_withcond_"
_ROLE = re.compile(r"(roles|(projects|organizations)/[^/]+/roles)/[a-zA-Z0-9._]{1,300}")
_MEMBER = re.compile(
    r"allUsers|allAuthenticatedUsers|(deleted:)?(user|serviceAccount|group|domain|projectOwner|projectEditor|projectViewer"
    r"|principal|principalSet):.{1,1000}"
)
_MOST_MEMBERS, _MOST_BYTES = 1_500, 64 * 1024
_CHANGED = "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff."


class _Kind(NamedTuple):
    permissions: Mapping[str, str]  # the actions behind Google's permissions
    role: str = ""  # empty: it has no access list
    listed: str = ""  # the permission that takes being on the access list
    member: str = ""  # the role in the project of those whom the list binds


def _permissions(kind: str, **actions: str) -> Mapping[str, str]:
    return {f"pubsub.{kind}.{name}": action for name, action in actions.items()}


_KINDS: Mapping[str, _Kind] = {
    TOPICS: _Kind(
        _permissions(
            TOPICS, get="topics:show", publish="topics:publish", update="topics:modifyRetention",
            delete="topics:delete", attachSubscription="subscriptions:create",
            detachSubscription="subscriptions:detach", getIamPolicy="topics:acl", setIamPolicy="topics:modifyAcl",
        ),
        "roles/pubsub.publisher", "pubsub.topics.publish", PUBLISHER,
    ),
    SUBSCRIPTIONS: _Kind(
        _permissions(
            SUBSCRIPTIONS, get="subscriptions:show", consume="subscriptions:pull", update="subscriptions:update",
            delete="subscriptions:delete", getIamPolicy="subscriptions:acl", setIamPolicy="subscriptions:modifyAcl",
        ),
        "roles/pubsub.subscriber", "pubsub.subscriptions.consume", CONSUMER,
    ),
    SNAPSHOTS: _Kind(_permissions(
        SNAPSHOTS, get="snapshots:show", seek="subscriptions:seek", update="snapshots:create",
        delete="snapshots:delete",
    )),
    SCHEMAS: _Kind(_permissions(
        SCHEMAS, get="schemas:show", attach="topics:attachSchema", commit="schemas:update", rollback="schemas:update",
        validate="schemas:validateMessage", delete="schemas:delete",
    )),
}  # fmt: skip


class IamRpcs:
    """Methods of the service IAMPolicy."""

    def __init__(
        self, registry: Registry, topics: Topics, subscriptions: Subscriptions, snapshots: Snapshots, schemas: Schemas
    ) -> None:
        self._registry = registry
        self._shows: Mapping[str, Callable[[Caller, Any], Awaitable[Any]]] = {
            TOPICS: topics.show, SUBSCRIPTIONS: subscriptions.show, SNAPSHOTS: snapshots.show, SCHEMAS: schemas.show,
        }  # fmt: skip

    async def get_iam_policy(self, call: PubsubCall, request: Message) -> Message:
        version = request.options.requested_policy_version
        _check_version(version, "requested_policy_version")
        return _show_policy(_KINDS[call.name.kind].role, await self._policy(call), version)

    async def set_iam_policy(self, call: PubsubCall, request: Message) -> Message:
        kind, etag = _KINDS[call.name.kind], request.policy.etag
        before = await self._policy(call)
        expected = Precondition(frozenset({etag.decode("latin-1")})) if etag else ANY_VERSION
        try:
            expected.check(lambda: before)
            if "bindings" not in _mask(request):
                return _show_policy(kind.role, before, _CONDITIONS)
            bindings = _bindings(request.policy)
            after = await self._registry.policies.set(
                call.name.kind, call.caller.here.id, call.name.leaf, kind.role, bindings, expected
            )
        except errors.ChangedMeanwhile:
            raise errors.ChangedMeanwhile(_CHANGED) from None
        return _show_policy(kind.role, require_found(after, errors.NotFound()), _CONDITIONS)

    async def test_iam_permissions(self, call: PubsubCall, request: Message) -> Message:
        """Return which of the permissions the caller has; none for a missing resource."""
        kind = _KINDS[call.name.kind]
        unknown = [each for each in request.permissions if each not in kind.permissions]
        if unknown:
            raise errors.InvalidInput(f"The permission {unknown[0]} is not one of {call.name.kind}.")
        has = [each for each in dict.fromkeys(request.permissions) if await self._has(call, kind, each)]
        return pb.TestIamPermissionsResponse(permissions=has)

    async def _has(self, call: PubsubCall, kind: _Kind, permission: str) -> bool:
        try:
            caller = await call.may(kind.permissions[permission])
            authorized = await self._access_list(caller, call.name)
            if permission == kind.listed:
                caller.require_listed(authorized, kind.member)
        except errors.UnknownToken:
            raise
        except (errors.NotAllowed, errors.NotAuthenticated, errors.NotFound):
            return False
        return True

    async def _access_list(self, caller: Caller, name: PubsubName) -> frozenset[UserId]:
        found = await self._shows[name.kind](caller, name.leaf)
        return found.authorized if _KINDS[name.kind].role else frozenset()

    async def _policy(self, call: PubsubCall) -> Policy:
        await self._access_list(call.caller, call.name)
        found = await self._registry.policies.find(call.name.kind, call.caller.here.id, call.name.leaf)
        return require_found(found, errors.NotFound())


def _show_policy(role: str, policy: Policy, version: int) -> Message:
    """Show a policy in this version: before version 3 the names of roles encode conditions."""
    shown = pb.Policy(etag=version_of(policy).encode())
    own = [each.members for each in policy.others if each.role == role and not each.condition]
    members = [*(f"{USER}{each}" for each in policy.users), *itertools.chain(*own)]
    if members:
        shown.bindings.add(role=role, members=members)
    for each in policy.others:
        if not each.condition:
            if each.role != role:
                shown.bindings.add(role=each.role, members=each.members)
        elif version < _CONDITIONS:
            shown.bindings.add(role=f"{each.role}{_WITH_CONDITION}{version_of(each.condition)}", members=each.members)
        else:
            shown.bindings.add(role=each.role, members=each.members, condition=dict(each.condition))
    if shown.bindings:
        has_conditions = version >= _CONDITIONS and any(each.condition for each in policy.others)
        shown.version = _CONDITIONS if has_conditions else 1
    return shown


def _check_version(version: int, field: str) -> None:
    if version not in (0, 1, _CONDITIONS):
        raise errors.InvalidInput(f"The version of a policy is 0, 1 or 3 (argument={field}).")


def _mask(request: Message) -> Collection[str]:
    for path in request.update_mask.paths:
        if path not in pb.Policy.DESCRIPTOR.fields_by_name:
            raise errors.InvalidInput(
                f"Invalid update_mask provided in the SetIamPolicyRequest: '{path}' is not a known Policy field."
            )
        if path == "audit_configs":
            raise NotSupported("The field audit_configs is not supported: the audit log has all changes.")
    return request.update_mask.paths or ("bindings", "etag")


def _bindings(policy: Message) -> Bindings:
    """Return the bindings of a policy. Raises `InvalidInput` for a bad role or member, and for too many."""
    _check_version(policy.version, "policy.version")
    found = []
    for each in policy.bindings:
        if not _ROLE.fullmatch(each.role) or _WITH_CONDITION in each.role:
            raise errors.InvalidInput(f"Role {each.role} is not supported for this resource.")
        if each.HasField("condition") and policy.version < _CONDITIONS:
            raise errors.InvalidInput("Conditions in bindings need version 3 of the policy (argument=policy.version).")
        for member in each.members:
            if not _MEMBER.fullmatch(member):
                raise errors.InvalidInput(
                    f"The member {member} is of an unknown type. Please set a valid type prefix for the member."
                )
        condition = {field.name: value for field, value in each.condition.ListFields()}
        if each.HasField("condition") and not each.condition.expression:
            raise errors.InvalidInput("A condition has an expression (argument=policy.bindings.condition).")
        found.append(RoleBinding(each.role, tuple(each.members), condition))
    if sum(len(each.members) for each in found) > _MOST_MEMBERS or policy.ByteSize() > _MOST_BYTES:
        raise errors.InvalidInput(f"A policy has at most {_MOST_MEMBERS} members and {_MOST_BYTES} bytes.")
    return tuple(found)
