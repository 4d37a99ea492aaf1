"""The table of permissions: every action of the API and the roles that may do it (HTTP contract 3.4).

One line an action, in the contract's order, then our own. `OPEN` actions are not admitted by role: their routes look
at the token themselves.
"""

from collections.abc import Mapping

from ams.access.roles import (
    ADMIN_VIEWER,
    ARGO_API_AUTHN,
    CONSUMER,
    METRICS_VIEWER,
    PROJECT_ADMIN,
    PUBLISHER,
    PUSH_WORKER,
    REGISTER_ADMIN,
    SELF,
    SERVICE_ADMIN,
)

OPEN: frozenset[str] = frozenset()
"""No role opens these through admission (contract 1.5, open routes)."""

_SERVICE = frozenset({SERVICE_ADMIN})
_PROJECT = _SERVICE | {PROJECT_ADMIN}
_PUBLISH = _PROJECT | {PUBLISHER}
_CONSUME = _PROJECT | {CONSUMER}
_DELIVER = _CONSUME | {PUSH_WORKER}
_WATCH = _SERVICE | {METRICS_VIEWER, ADMIN_VIEWER}
_VIEW = _SERVICE | {ADMIN_VIEWER}
_OWNER = _SERVICE | {SELF}

PERMISSIONS: Mapping[str, frozenset[str]] = {
    "ams:metrics": _WATCH,
    "ams:healthStatus": OPEN,
    "ams:vaMetrics": _WATCH,
    "users:byToken": _SERVICE | {PUSH_WORKER},
    "users:byUUID": _SERVICE | {ARGO_API_AUTHN},
    "users:list": _SERVICE,
    "users:profile": OPEN,
    "users:usageReport": OPEN,
    "users:show": _SERVICE,
    "users:refreshToken": _SERVICE,
    "users:create": _SERVICE,
    "users:update": _SERVICE,
    "users:delete": _SERVICE,
    "registrations:newUser": _SERVICE | {REGISTER_ADMIN},
    "registrations:acceptNewUser": _SERVICE,
    "registrations:declineNewUser": _SERVICE,
    "registrations:delete": _SERVICE,
    "registrations:show": _SERVICE,
    "registrations:list": _SERVICE,
    "projects:list": _SERVICE,
    "projects:metrics": _PROJECT,
    "projects:addUser": _PROJECT,
    "projects:removeUser": _PROJECT,
    "projects:showUser": _PROJECT,
    "projects:createUser": _PROJECT,
    "projects:updateUser": _PROJECT,
    "projects:listUsers": _PROJECT,
    "projects:show": _PROJECT,
    "projects:create": _SERVICE,
    "projects:update": _PROJECT,
    "projects:delete": _PROJECT,
    "subscriptions:list": _CONSUME,
    "subscriptions:listByTopic": _PROJECT,
    "subscriptions:offsets": _CONSUME,
    "subscriptions:timeToOffset": _CONSUME,
    "subscriptions:acl": _PROJECT,
    "subscriptions:metrics": _CONSUME,
    "subscriptions:show": _DELIVER,
    "subscriptions:create": _PROJECT,
    "subscriptions:delete": _PROJECT,
    "subscriptions:pull": _DELIVER,
    "subscriptions:acknowledge": _DELIVER,
    "subscriptions:verifyPushEndpoint": _PROJECT,
    "subscriptions:modifyAckDeadline": _CONSUME,
    "subscriptions:modifyPushConfig": _PROJECT,
    "subscriptions:modifyOffset": _CONSUME,
    "subscriptions:modifyAcl": _PROJECT,
    "topics:list": _PUBLISH,
    "topics:acl": _PROJECT,
    "topics:metrics": _PUBLISH,
    "topics:show": _PUBLISH,
    "topics:create": _PROJECT,
    "topics:delete": _PROJECT,
    "topics:publish": _PUBLISH,
    "topics:modifyAcl": _PROJECT,
    "topics:attachSchema": _PROJECT,
    "topics:detachSchema": _PROJECT,
    "schemas:validateMessage": _PROJECT,
    "schemas:create": _PROJECT,
    "schemas:show": _PROJECT,
    "schemas:list": _PROJECT,
    "schemas:update": _PROJECT,
    "schemas:delete": _PROJECT,
    "version:list": OPEN,
    "topics:read": _CONSUME,
    "topics:offsets": _CONSUME,
    "topics:modifyRetention": _PROJECT,
    "projects:modifyRetention": _PROJECT,
    "schemas:dryRun": _PROJECT,
    "subscriptions:seek": _CONSUME,
    "subscriptions:doctor": _CONSUME,
    "service:doctor": _VIEW,
    "subscriptions:rotatePushSecret": _PROJECT,
    "push:lease": frozenset({PUSH_WORKER}),
    "push:wait": frozenset({PUSH_WORKER}),
    "subscriptions:pushStatus": _DELIVER,
    "subscriptions:deadLetter": frozenset({PUSH_WORKER}),
    "audit:list": _SERVICE,
    "tokens:list": _OWNER,
    "tokens:show": _OWNER,
    "tokens:create": _OWNER,
    "tokens:revoke": _OWNER,
    "bindings:list": _OWNER,
    "bindings:create": _SERVICE,
    "bindings:delete": _SERVICE,
    "issuers:list": _SERVICE,
    "issuers:show": _SERVICE,
    "issuers:create": _SERVICE,
    "issuers:update": _SERVICE,
    "issuers:delete": _SERVICE,
}

_OF_LOGINS = frozenset({"tokens", "bindings", "issuers"})


def needs_all_rights(action: str) -> bool:
    """Whether an action is for logins with all rights of their users only, whatever rights one was given.

    Those by which somebody could log in as the same user, or as another, with more rights.
    """
    return action == "users:refreshToken" or action.partition(":")[0] in _OF_LOGINS
