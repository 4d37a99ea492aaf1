"""Programs in a browser, from another origin: the administration page and the older page of metrics."""

from collections.abc import Callable
from typing import Any

from tests.acceptance.clients.wire import Says, has, lists

ORIGIN = "https://admin.example"
_BROWSER = f"""
Accept: */*
Accept-Language: en-US,en;q=0.9
Origin: {ORIGIN}
Referer: {ORIGIN}/
Sec-Fetch-Mode: cors
User-Agent: Mozilla/5.0 (X11; Linux x86_64)
"""
_PAGE = _BROWSER + "x-api-key: $token\nContent-Type: application/json"
_PROJECT = "/v1/projects/$P"
_TOPIC, _SUBSCRIPTION = f"{_PROJECT}/topics/ui", f"{_PROJECT}/subscriptions/ui"


def preflight(method: str, path: str) -> Says:
    """What a browser asks before a call with a token."""
    asked = f"Access-Control-Request-Method: {method}\nAccess-Control-Request-Headers: content-type,x-api-key"
    return Says(f"OPTIONS {path}", _BROWSER + asked)


def _fifth_is(name: str, member: str) -> Callable[[Any], bool]:
    """Pages take the fifth element of a resource name after splitting on slashes (A4)."""
    return lambda document: document[member].split("/")[4] == name


LOGIN = [
    Says("GET /v1/users/profile", _PAGE, needs=lambda document: len(document["service_roles"]) > 0
         and isinstance(document["name"], str)),
]  # fmt: skip
PROJECTS_AND_USERS = [
    Says("GET /v1/projects", _PAGE, needs=lists("projects")),
    Says(f"GET {_PROJECT}", _PAGE, needs=has("name", "created_on", "modified_on")),
    Says("POST /v1/projects/$P-ui", _PAGE, '{"description":"from the page"}', needs=has("name")),
    Says("PUT /v1/projects/$P-ui", _PAGE, '{"description":"changed"}', needs=has("description")),
    Says("DELETE /v1/projects/$P-ui", _PAGE),
    Says("GET /v1/users?details=true&pageSize=10", _PAGE, needs=has("users", "nextPageToken", "totalSize")),
    Says("POST /v1/users/$P-ui", _PAGE, '{"projects":[{"project":"$P","roles":["consumer"],"topics":[],'
         '"subscriptions":[]}],"email":"u@site.example","service_roles":[]}', needs=has("uuid", "token"), why="R4"),
    Says("PUT /v1/users/$P-ui", _PAGE, '{"projects":[{"project":"$P","roles":["publisher"]}],"service_roles":[]}'),
    Says("POST /v1/users/$P-ui:refreshToken", _PAGE, "{}", needs=has("token"), why="R6"),
    Says(f"GET {_PROJECT}/members?details=true", _PAGE, needs=lists("users")),
    Says(f"GET {_PROJECT}/members/$P-ui", _PAGE, needs=has("projects")),
    Says(f"PUT {_PROJECT}/members/$P-ui", _PAGE, '{"name":"$P-ui","projects":[{"project":"$P","roles":["consumer"]}]}'),
    Says(f"POST {_PROJECT}/members/$P-ui:remove", _PAGE, '""', needs=lambda document: document == {}, why="R6"),
    Says(f"POST {_PROJECT}/members/$P-ui:add", _PAGE, '{"roles":["publisher"]}', needs=has("projects")),
    Says("DELETE /v1/users/$P-ui", _PAGE),
]  # fmt: skip
TOPICS_AND_SCHEMAS = [
    Says(f"PUT {_TOPIC}", _PAGE, '{"schema":""}', needs=_fifth_is("ui", "name"), why="R5"),
    Says(f"GET {_PROJECT}/topics", _PAGE, needs=lists("topics")),
    Says(f"GET {_TOPIC}", _PAGE, needs=has("created_on")),
    Says(f"POST {_PROJECT}/schemas/ui", _PAGE, '{"type":"json","schema":{"type":"object","required":["a"]}}',
         needs=has("uuid", "name", "type", "schema")),
    Says(f"GET {_PROJECT}/schemas", _PAGE, needs=lists("schemas")),
    Says(f"PUT {_PROJECT}/schemas/ui", _PAGE,
         '{"name":"projects/$P/schemas/ui","type":"json","schema":{"type":"object"}}', why="the full name in `name`"),
    Says(f"POST {_PROJECT}/schemas/ui:validate", _PAGE, '{"a":1}', needs=has("message")),
    Says(f"POST {_TOPIC}:attachSchema", _PAGE, '{"schema":"projects/$P/schemas/ui"}'),
    Says(f"GET {_TOPIC}", _PAGE, needs=lambda document: document["schema"].endswith("/schemas/ui")),
    Says(f"POST {_TOPIC}:detachSchema", _PAGE, "{}", why="R6"),
    Says(f"DELETE {_PROJECT}/schemas/ui", _PAGE),
    Says(f"GET {_TOPIC}:acl", _PAGE, needs=lists("authorized_users")),
    Says(f"POST {_TOPIC}:modifyAcl", _PAGE, '{"authorized_users":[]}'),
    Says(f"POST {_TOPIC}:publish", _PAGE, '{"messages":[{"attributes":{"k":"v"},"data":"aGk="}]}',
         needs=lists("messageIds")),
    Says(f"GET {_TOPIC}:metrics", _PAGE, needs=lists("metrics")),
]  # fmt: skip
SUBSCRIPTIONS = [
    Says(f"PUT {_SUBSCRIPTION}", _PAGE, '{"topic":"projects/$P/topics/ui","pushConfig":{},"ackDeadlineSeconds":10}',
         needs=lambda document: isinstance(document["pushConfig"]["verified"], bool)),
    Says(f"GET {_PROJECT}/subscriptions", _PAGE, needs=lists("subscriptions")),
    Says(f"GET {_SUBSCRIPTION}", _PAGE, needs=_fifth_is("ui", "topic")),
    Says(f"GET {_SUBSCRIPTION}:acl", _PAGE, needs=lists("authorized_users")),
    Says(f"POST {_SUBSCRIPTION}:modifyAcl", _PAGE, '{"authorized_users":[]}'),
    Says(f"GET {_SUBSCRIPTION}:offsets", _PAGE, needs=has("max", "min", "current")),
    Says(f"POST {_SUBSCRIPTION}:modifyOffset", _PAGE, '{"offset":0}'),
    Says(f"POST {_SUBSCRIPTION}:modifyAckDeadline", _PAGE, '{"ackDeadlineSeconds":30}'),
    Says(f"POST {_SUBSCRIPTION}:modifyPushConfig", _PAGE, '{"pushConfig":{}}', why="{} clears"),
    Says(f"POST {_SUBSCRIPTION}:pull", _PAGE, '{"maxMessages":"1","returnImmediately":"true"}',
         needs=lists("receivedMessages"), keeps={"ack": lambda document: document["receivedMessages"][0]["ackId"]}),
    Says(f"POST {_SUBSCRIPTION}:acknowledge", _PAGE, '{"ackIds":["$ack"]}', needs=lambda document: document == {}),
    Says(f"GET {_SUBSCRIPTION}:metrics", _PAGE, needs=lists("metrics")),
    Says(f"POST {_SUBSCRIPTION}:verifyPushEndpoint", _PAGE, '""', status=409, why="push is off"),
    Says(f"DELETE {_SUBSCRIPTION}", _PAGE),
    Says(f"DELETE {_TOPIC}", _PAGE),
]  # fmt: skip
REGISTRATIONS = [
    Says("POST /v1/registrations", _PAGE, '{"name":"$P-one"}', keeps={"one": lambda document: document["uuid"]}),
    Says("POST /v1/registrations", _PAGE, '{"name":"$P-two"}', keeps={"two": lambda document: document["uuid"]}),
    Says("GET /v1/registrations?status=pending", _PAGE, needs=lists("user_registrations")),
    Says("GET /v1/registrations/$one", _PAGE, needs=has("uuid", "status", "activation_token")),
    Says("POST /v1/registrations/$one:accept", _PAGE, "{}", needs=has("uuid", "name", "token"), why="R6"),
    Says("POST /v1/registrations/$two:decline", _PAGE, '{"comment":"no such site"}',
         needs=lambda document: document == {}),
    Says("DELETE /v1/registrations/$two", _PAGE),
]  # fmt: skip
METRICS = [
    Says("GET /v1/metrics", _PAGE, needs=lambda document: all(each["timeseries"] for each in document["metrics"]),
         why="A21: reads the first point without a check"),
    Says("GET /v1/metrics/va_metrics?&start_date=2024-01-01&end_date=2024-12-31&projects=$P", _PAGE, why="R10",
         needs=lambda document: {"total_message_count", "average_daily_messages", "projects"}
         <= set(document["projects_metrics"]) and "total_users_count" in document),
    Says("GET /v1/users/usageReport?start_date=2024-01-01&end_date=2024-12-31", _PAGE,
         needs=has("va_metrics", "operational_metrics")),
    Says(f"GET {_PROJECT}:metrics", _PAGE, needs=lists("metrics")),
]  # fmt: skip
OLD_METRICS_PAGE = [
    Says("GET /v1/users:byToken/$token?key=$token", _BROWSER, needs=has("name")),
    Says("GET /v1/users?key=$token", _BROWSER, needs=lists("users")),
    Says(f"GET {_PROJECT}:metrics?key=$token", _BROWSER, needs=lists("metrics")),
    Says(f"GET {_PROJECT}/topics/metric_data:metrics?key=$token", _BROWSER,
         needs=lambda document: all(each["metric"].startswith(each["resource_type"] + ".")
                                    for each in document["metrics"])),
    Says(f"GET {_PROJECT}/subscriptions/ingest_metric:metrics?key=$token", _BROWSER, needs=lists("metrics")),
    Says("GET /v1/metrics?key=$token", _BROWSER, needs=lists("metrics")),
]  # fmt: skip
