"""Method and path of every action, typed in from the contract's table (3.4), and of our own.

`x` names a user, registration or schema that need not be there: what is asked is who may, not what comes of it.
"""

from tests.contract.rows import MEMBERS, PROJECT, SCHEMA, SCHEMAS, SUBSCRIPTION, SUBSCRIPTIONS, TOPIC, TOPICS

USER, A_MEMBER = "/users/$P-x", MEMBERS + "/$P-x"
REGISTRATION = "/registrations/0"

PATHS = {
    "ams:metrics": ("GET", "/metrics"),
    "ams:vaMetrics": ("GET", "/metrics/va_metrics"),
    "users:byToken": ("GET", "/users:byToken/x"),
    "users:byUUID": ("GET", "/users:byUUID/x"),
    "users:list": ("GET", "/users"),
    "users:show": ("GET", USER),
    "users:refreshToken": ("POST", USER + ":refreshToken"),
    "users:create": ("POST", USER),
    "users:update": ("PUT", USER),
    "users:delete": ("DELETE", USER),
    "registrations:newUser": ("POST", "/registrations"),
    "registrations:acceptNewUser": ("POST", REGISTRATION + ":accept"),
    "registrations:declineNewUser": ("POST", REGISTRATION + ":decline"),
    "registrations:delete": ("DELETE", REGISTRATION),
    "registrations:show": ("GET", REGISTRATION),
    "registrations:list": ("GET", "/registrations"),
    "projects:list": ("GET", "/projects"),
    "projects:metrics": ("GET", PROJECT + ":metrics"),
    "projects:addUser": ("POST", A_MEMBER + ":add"),
    "projects:removeUser": ("POST", A_MEMBER + ":remove"),
    "projects:showUser": ("GET", A_MEMBER),
    "projects:createUser": ("POST", A_MEMBER),
    "projects:updateUser": ("PUT", A_MEMBER),
    "projects:listUsers": ("GET", MEMBERS),
    "projects:show": ("GET", PROJECT),
    "projects:create": ("POST", PROJECT + "-new"),
    "projects:update": ("PUT", PROJECT),
    "projects:delete": ("DELETE", PROJECT),
    "subscriptions:list": ("GET", SUBSCRIPTIONS),
    "subscriptions:listByTopic": ("GET", TOPIC + "/subscriptions"),
    "subscriptions:offsets": ("GET", SUBSCRIPTION + ":offsets"),
    "subscriptions:timeToOffset": ("GET", SUBSCRIPTION + ":timeToOffset"),
    "subscriptions:acl": ("GET", SUBSCRIPTION + ":acl"),
    "subscriptions:metrics": ("GET", SUBSCRIPTION + ":metrics"),
    "subscriptions:show": ("GET", SUBSCRIPTION),
    "subscriptions:create": ("PUT", SUBSCRIPTION),
    "subscriptions:delete": ("DELETE", SUBSCRIPTION),
    "subscriptions:pull": ("POST", SUBSCRIPTION + ":pull"),
    "subscriptions:acknowledge": ("POST", SUBSCRIPTION + ":acknowledge"),
    "subscriptions:verifyPushEndpoint": ("POST", SUBSCRIPTION + ":verifyPushEndpoint"),
    "subscriptions:modifyAckDeadline": ("POST", SUBSCRIPTION + ":modifyAckDeadline"),
    "subscriptions:modifyPushConfig": ("POST", SUBSCRIPTION + ":modifyPushConfig"),
    "subscriptions:modifyOffset": ("POST", SUBSCRIPTION + ":modifyOffset"),
    "subscriptions:modifyAcl": ("POST", SUBSCRIPTION + ":modifyAcl"),
    "topics:list": ("GET", TOPICS),
    "topics:acl": ("GET", TOPIC + ":acl"),
    "topics:metrics": ("GET", TOPIC + ":metrics"),
    "topics:show": ("GET", TOPIC),
    "topics:create": ("PUT", TOPIC),
    "topics:delete": ("DELETE", TOPIC),
    "topics:publish": ("POST", TOPIC + ":publish"),
    "topics:modifyAcl": ("POST", TOPIC + ":modifyAcl"),
    "topics:attachSchema": ("POST", TOPIC + ":attachSchema"),
    "topics:detachSchema": ("POST", TOPIC + ":detachSchema"),
    "schemas:validateMessage": ("POST", SCHEMA + ":validate"),
    "schemas:create": ("POST", SCHEMA),
    "schemas:show": ("GET", SCHEMA),
    "schemas:list": ("GET", SCHEMAS),
    "schemas:update": ("PUT", SCHEMA),
    "schemas:delete": ("DELETE", SCHEMA),
    # ours
    "topics:read": ("GET", TOPIC + ":read"),
    "topics:offsets": ("GET", TOPIC + ":offsets"),
    "topics:modifyRetention": ("POST", TOPIC + ":modifyRetention"),
    "projects:modifyRetention": ("POST", PROJECT + ":modifyRetention"),
    "schemas:dryRun": ("POST", SCHEMA + ":dryRun"),
    "subscriptions:seek": ("POST", SUBSCRIPTION + ":seek"),
    "subscriptions:doctor": ("GET", SUBSCRIPTION + ":doctor"),
    "service:doctor": ("GET", "/doctor"),
}
"""All but the four open ones."""

OPEN = {
    "ams:healthStatus": ("GET", "/status"),
    "users:profile": ("GET", "/users/profile"),
    "users:usageReport": ("GET", "/users/usageReport"),
    "version:list": ("GET", "/version"),
}
