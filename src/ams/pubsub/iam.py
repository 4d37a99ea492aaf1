"""The service IAMPolicy: access lists of topics and subscriptions, as policies with one role; and what one may do.

On a topic the role is `roles/pubsub.publisher`, on a subscription `roles/pubsub.subscriber`; a member is
`user:NAME OF A USER`. Roles of users in a project are given by the HTTP API only.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ams.access.admission import Caller
from ams.access.permissions import CONSUMER, PUBLISHER
from ams.core import errors
from ams.core.names import SchemaName, SnapshotName, SubscriptionName, TopicName, UserId, UserName
from ams.core.versions import ANY_VERSION, Precondition, version_of
from ams.pubsub import fields
from ams.pubsub import protos as pb
from ams.pubsub.calls import Call, ChangeRpc, Rpc
from ams.pubsub.errors import NotSupported
from ams.pubsub.fields import SCHEMAS, SNAPSHOTS, SUBSCRIPTIONS, TOPICS, Name
from ams.pubsub.protos import Message
from ams.service.schemas import Schemas
from ams.service.seeking import Snapshots
from ams.service.subscriptions import Subscriptions
from ams.service.topics import Topics

NAME = "google.iam.v1.IAMPolicy"
_USER = "user:"
_CHANGED = "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff."


class _Kind(NamedTuple):
    role: str  # empty: it has no access list
    shows: str  # the action by which its policy is read
    changes: str
    permissions: Mapping[str, str]  # the actions behind Google's permissions
    listed: str = ""  # the permission that takes being on the access list
    member: str = ""  # the role in the project of those whom the list binds


_KINDS: Mapping[str, _Kind] = {
    TOPICS: _Kind(
        "roles/pubsub.publisher",
        "topics:acl",
        "topics:modifyAcl",
        {
            "pubsub.topics.get": "topics:show",
            "pubsub.topics.publish": "topics:publish",
            "pubsub.topics.update": "topics:modifyRetention",
            "pubsub.topics.delete": "topics:delete",
            "pubsub.topics.attachSubscription": "subscriptions:create",
            "pubsub.topics.detachSubscription": "subscriptions:detach",
            "pubsub.topics.getIamPolicy": "topics:acl",
            "pubsub.topics.setIamPolicy": "topics:modifyAcl",
        },
        "pubsub.topics.publish",
        PUBLISHER,
    ),
    SUBSCRIPTIONS: _Kind(
        "roles/pubsub.subscriber",
        "subscriptions:acl",
        "subscriptions:modifyAcl",
        {
            "pubsub.subscriptions.get": "subscriptions:show",
            "pubsub.subscriptions.consume": "subscriptions:pull",
            "pubsub.subscriptions.update": "subscriptions:update",
            "pubsub.subscriptions.delete": "subscriptions:delete",
            "pubsub.subscriptions.getIamPolicy": "subscriptions:acl",
            "pubsub.subscriptions.setIamPolicy": "subscriptions:modifyAcl",
        },
        "pubsub.subscriptions.consume",
        CONSUMER,
    ),
    SNAPSHOTS: _Kind(
        "",
        "snapshots:show",
        "snapshots:create",
        {
            "pubsub.snapshots.get": "snapshots:show",
            "pubsub.snapshots.seek": "subscriptions:seek",
            "pubsub.snapshots.update": "snapshots:create",
            "pubsub.snapshots.delete": "snapshots:delete",
        },
    ),
    SCHEMAS: _Kind(
        "",
        "schemas:show",
        "schemas:update",
        {
            "pubsub.schemas.get": "schemas:show",
            "pubsub.schemas.attach": "topics:attachSchema",
            "pubsub.schemas.commit": "schemas:update",
            "pubsub.schemas.rollback": "schemas:update",
            "pubsub.schemas.validate": "schemas:validateMessage",
            "pubsub.schemas.delete": "schemas:delete",
        },
    ),
}


class IamRpcs:
    """Methods of the service IAMPolicy."""

    def __init__(self, topics: Topics, subscriptions: Subscriptions, snapshots: Snapshots, schemas: Schemas) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._snapshots = snapshots
        self._schemas = schemas

    def rpcs(self) -> list[Rpc]:
        """Return the methods."""
        return [
            Rpc("GetIamPolicy", pb.GetIamPolicyRequest, lambda each: _kind(each).shows, _resource, self.get),
            ChangeRpc("SetIamPolicy", pb.SetIamPolicyRequest, lambda each: _kind(each).changes, _resource, self.set),
            Rpc("TestIamPermissions", pb.TestIamPermissionsRequest, "", _resource, self.test),
        ]

    async def get(self, call: Call, request: Message) -> Message:
        """Show the access list; what has none has an empty policy."""
        if not _KINDS[call.name.kind].role:
            await self._authorized(call.caller, call.name)
            return pb.Policy()
        return _policy(_KINDS[call.name.kind].role, await self._users(call))

    async def set(self, call: Call, request: Message) -> Message:
        """Replace the access list, unless the mask names other fields only."""
        kind = _KINDS[call.name.kind]
        if not kind.role:
            await self._authorized(call.caller, call.name)
            raise NotSupported(f"A policy of {call.name.kind} is not supported: only the roles in the project count.")
        before, etag = await self._users(call), request.policy.etag
        expected = Precondition(frozenset({etag.decode("latin-1")})) if etag else ANY_VERSION
        try:
            expected.check(lambda: before)
            if "bindings" not in _mask(request):
                return _policy(kind.role, before)
            users = _members(request.policy, kind.role)
            caller = replace(call.caller, expected=expected)
            if call.name.kind == TOPICS:
                after = await self._topics.set_access_list(caller, TopicName(call.name.leaf), users)
            else:
                after = await self._subscriptions.set_access_list(caller, SubscriptionName(call.name.leaf), users)
        except errors.NoMembers as missing:
            raise errors.InvalidInput(missing.message) from None
        except errors.ChangedMeanwhile:
            raise errors.ChangedMeanwhile(_CHANGED) from None
        return _policy(kind.role, after)

    async def test(self, call: Call, request: Message) -> Message:
        """Return which of the permissions who calls has; none of a resource that is missing."""
        kind = _KINDS[call.name.kind]
        unknown = [each for each in request.permissions if each not in kind.permissions]
        if unknown:
            raise errors.InvalidInput(f"The permission {unknown[0]} is not one of {call.name.kind}.")
        has = [each for each in dict.fromkeys(request.permissions) if await self._has(call, kind, each)]
        return pb.TestIamPermissionsResponse(permissions=has)

    async def _has(self, call: Call, kind: _Kind, permission: str) -> bool:
        try:
            caller = await call.may(kind.permissions[permission])
            authorized = await self._authorized(caller, call.name)
            if permission == kind.listed:
                caller.require_listed(authorized, kind.member)
        except errors.UnknownToken:
            raise
        except (errors.NotAllowed, errors.NotAuthenticated, errors.NotFound):
            return False
        return True

    async def _authorized(self, caller: Caller, name: Name) -> frozenset[UserId]:
        """Return who is on the access list of a resource, which may be of a kind that has none; raise `NotFound`."""
        if name.kind == TOPICS:
            return (await self._topics.show(caller, TopicName(name.leaf))).authorized
        if name.kind == SUBSCRIPTIONS:
            return (await self._subscriptions.show(caller, SubscriptionName(name.leaf))).authorized
        if name.kind == SNAPSHOTS:
            await self._snapshots.show(caller, SnapshotName(name.leaf))
        else:
            await self._schemas.show(caller, SchemaName(name.leaf))
        return frozenset()

    async def _users(self, call: Call) -> Sequence[UserName]:
        if call.name.kind == TOPICS:
            return await self._topics.access_list(call.caller, TopicName(call.name.leaf))
        return await self._subscriptions.access_list(call.caller, SubscriptionName(call.name.leaf))


def _policy(role: str, users: Sequence[UserName]) -> Message:
    policy = pb.Policy(version=1, etag=version_of(users).encode())
    if users:
        policy.bindings.add(role=role, members=[f"{_USER}{each}" for each in users])
    return policy


def _mask(request: Message) -> Collection[str]:
    """Return which fields of a policy are to be set; raise `InvalidInput`, `NotSupported` for one that is not there."""
    for path in request.update_mask.paths:
        if path not in pb.Policy.DESCRIPTOR.fields_by_name:
            raise errors.InvalidInput(
                f"Invalid update_mask provided in the SetIamPolicyRequest: '{path}' is not a known Policy field."
            )
        if path == "audit_configs":
            raise NotSupported("The field audit_configs is not supported: the audit log has all changes.")
    return request.update_mask.paths or ("bindings", "etag")


def _members(policy: Message, role: str) -> list[str]:
    """Return the users whom a policy names; raise `InvalidInput` for what is no user, and for another role."""
    found: dict[str, None] = {}
    for binding in policy.bindings:
        if binding.role != role:
            raise errors.InvalidInput(f"Role {binding.role} is not supported for this resource: only {role} is.")
        if binding.HasField("condition"):
            raise errors.InvalidInput("Conditions in bindings are not supported.")
        for member in binding.members:
            if not member.startswith(_USER):
                raise errors.InvalidInput(
                    f"The member {member} is of unknown type: only {_USER}NAME, a user of AMS, is known."
                )
            found[member.removeprefix(_USER)] = None
    return list(found)


def _resource(request: Message) -> Name:
    return fields.read_name(request.resource, *_KINDS)


def _kind(request: Message) -> _Kind:
    return _KINDS[_resource(request).kind]
