"""Method and path of every action, from the contract's table (3.4), and of our own.

`x` names a user, registration or schema that need not exist: only permission is tested.
"""

from tests.contract.rows import MEMBERS, PROJECT, SCHEMA, SCHEMAS, SUBSCRIPTION, SUBSCRIPTIONS, TOPIC, TOPICS

SNAPSHOTS = PROJECT + "/snapshots"
USER, A_MEMBER = "/users/$P-x", MEMBERS + "/$P-x"
REGISTRATION = "/registrations/0"


def verbs(kind: str, method: str, *names: str) -> dict[str, tuple[str, str]]:
    resource = {"topics": TOPIC, "subscriptions": SUBSCRIPTION}[kind]
    return {f"{kind}:{name}": (method, f"{resource}:{name}") for name in names}


PATHS = {
    "ams:metrics": ("GET", "/metrics"), "ams:vaMetrics": ("GET", "/metrics/va_metrics"),
    "users:byToken": ("GET", "/users:byToken/x"), "users:byUUID": ("GET", "/users:byUUID/x"),
    "users:list": ("GET", "/users"), "users:show": ("GET", USER),
    "users:refreshToken": ("POST", USER + ":refreshToken"), "users:create": ("POST", USER),
    "users:update": ("PUT", USER), "users:delete": ("DELETE", USER),
    "registrations:newUser": ("POST", "/registrations"),
    "registrations:acceptNewUser": ("POST", REGISTRATION + ":accept"),
    "registrations:declineNewUser": ("POST", REGISTRATION + ":decline"),
    "registrations:delete": ("DELETE", REGISTRATION), "registrations:show": ("GET", REGISTRATION),
    "registrations:list": ("GET", "/registrations"), "projects:list": ("GET", "/projects"),
    "projects:metrics": ("GET", PROJECT + ":metrics"), "projects:addUser": ("POST", A_MEMBER + ":add"),
    "projects:removeUser": ("POST", A_MEMBER + ":remove"), "projects:showUser": ("GET", A_MEMBER),
    "projects:createUser": ("POST", A_MEMBER), "projects:updateUser": ("PUT", A_MEMBER),
    "projects:listUsers": ("GET", MEMBERS), "projects:show": ("GET", PROJECT),
    "projects:create": ("POST", PROJECT + "-new"), "projects:update": ("PUT", PROJECT),
    "projects:delete": ("DELETE", PROJECT), "subscriptions:list": ("GET", SUBSCRIPTIONS),
    "subscriptions:listByTopic": ("GET", TOPIC + "/subscriptions"), "subscriptions:show": ("GET", SUBSCRIPTION),
    "subscriptions:create": ("PUT", SUBSCRIPTION), "subscriptions:delete": ("DELETE", SUBSCRIPTION),
    **verbs("subscriptions", "GET", "offsets", "timeToOffset", "acl", "metrics"),
    **verbs("subscriptions", "POST", "pull", "acknowledge", "verifyPushEndpoint", "modifyAckDeadline",
            "modifyPushConfig", "modifyOffset", "modifyAcl"),
    "topics:list": ("GET", TOPICS), "topics:show": ("GET", TOPIC), "topics:create": ("PUT", TOPIC),
    "topics:delete": ("DELETE", TOPIC),
    **verbs("topics", "GET", "acl", "metrics"),
    **verbs("topics", "POST", "publish", "modifyAcl", "attachSchema", "detachSchema"),
    "schemas:validateMessage": ("POST", SCHEMA + ":validate"), "schemas:create": ("POST", SCHEMA),
    "schemas:show": ("GET", SCHEMA), "schemas:list": ("GET", SCHEMAS), "schemas:update": ("PUT", SCHEMA),
    "schemas:delete": ("DELETE", SCHEMA),
    # ours
    "projects:refreshUserToken": ("POST", A_MEMBER + ":refreshToken"),
    **verbs("topics", "POST", "changeAcl", "modifyRetention"),
    **verbs("topics", "GET", "read", "offsets", "timeToOffset"),
    "projects:modifyRetention": ("POST", PROJECT + ":modifyRetention"), "projects:quotas": ("GET", PROJECT + ":quotas"),
    "projects:modifyQuotas": ("POST", PROJECT + ":modifyQuotas"), "schemas:revisions": ("GET", SCHEMA + ":revisions"),
    "schemas:dryRun": ("POST", SCHEMA + ":dryRun"),
    **verbs("subscriptions", "GET", "doctor", "pushStatus"),
    **verbs("subscriptions", "POST", "changeAcl", "seek", "update", "nack", "detach", "extendLeases",
            "rotatePushSecret", "deadLetter"),
    "service:doctor": ("GET", "/doctor"), "snapshots:list": ("GET", SNAPSHOTS),
    "snapshots:show": ("GET", SNAPSHOTS + "/x"), "snapshots:create": ("PUT", SNAPSHOTS + "/x"),
    "snapshots:delete": ("DELETE", SNAPSHOTS + "/x"), "push:lease": ("POST", "/push:lease"),
    "push:wait": ("POST", "/push:wait"), "audit:list": ("GET", "/audit"), "tokens:list": ("GET", USER + "/tokens"),
    "tokens:show": ("GET", USER + "/tokens/x"), "tokens:create": ("POST", USER + "/tokens/x"),
    "tokens:revoke": ("DELETE", USER + "/tokens/x"), "bindings:list": ("GET", USER + "/bindings"),
    "bindings:create": ("POST", USER + "/bindings/x"), "bindings:delete": ("DELETE", USER + "/bindings/x"),
    "issuers:list": ("GET", "/issuers"), "issuers:show": ("GET", "/issuers/x"),
    "issuers:create": ("POST", "/issuers/x"), "issuers:update": ("PUT", "/issuers/x"),
    "issuers:delete": ("DELETE", "/issuers/x"), "projects:watch": ("GET", PROJECT + ":watch"),
    "projects:history": ("GET", PROJECT + ":history"),
}  # fmt: skip
"""All actions but the four open ones."""

OPEN = {
    "ams:healthStatus": ("GET", "/status"), "users:profile": ("GET", "/users/profile"),
    "users:usageReport": ("GET", "/users/usageReport"), "version:list": ("GET", "/version"),
}  # fmt: skip
