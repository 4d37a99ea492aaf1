"""What known clients send in a row, as they send it, and what they need of the answers.

Each single rule of clients, part A, is a row of the contract's table; here they are used one after the other.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Need = Callable[[Any], bool]
"""What a client needs of an answer's document; it fails or says False when that is not there."""


class Says(NamedTuple):
    """One request and what its sender needs of the answer."""

    line: str
    """Method and target; `$token` and other names are filled in, as in the body."""
    body: str = ""
    needs: Need = lambda _: True
    status: int = 200
    keeps: Mapping[str, Callable[[Any], str]] = {}
    """What later requests use of the answer, by name."""
    why: str = ""


def has(*names: str) -> Need:
    """Need these members, whatever they hold."""
    return lambda document: all(name in document for name in names)


JSON = {"Content-Type": "application/json"}
WITH_TOKEN = {"x-api-key": "$token"}
BROWSER = {"Origin": "https://admin.example", "Sec-Fetch-Mode": "cors"}

_PROJECT = "/v1/projects/$P"
_SUBSCRIPTION = f"{_PROJECT}/subscriptions/ingest_metric"
_FIRST_ACK = {"ack": lambda document: document["receivedMessages"][0]["ackId"]}

JAVA = [
    Says(f"GET {_SUBSCRIPTION}:timeToOffset?time=1999-01-02T00:00:00.000Z", why="midnight of the run's day",
         keeps={"offset": lambda document: str(document["offset"])}),
    Says(f"POST {_SUBSCRIPTION}:modifyOffset", '{"offset":$offset}'),
    Says(f"POST {_SUBSCRIPTION}:pull", '{"maxMessages":"3","returnImmediately":"true"}',
         lambda document: [each["message"]["messageId"] for each in document["receivedMessages"]] == ["0", "1", "2"],
         keeps={"last": lambda document: document["receivedMessages"][-1]["ackId"]}),
    Says(f"POST {_SUBSCRIPTION}:acknowledge", '{"ackIds":["$last"]}', lambda document: document == {}, why="R9, A13"),
    Says(f"POST {_SUBSCRIPTION}:pull", '{"maxMessages":"1","returnImmediately":"true"}',
         lambda document: document["receivedMessages"][0]["message"]["messageId"] == "3"),
    Says(f"GET {_SUBSCRIPTION}:offsets", keeps={"end": lambda document: str(document["max"])}),
    Says(f"POST {_SUBSCRIPTION}:modifyOffset", '{"offset":$end}'),
    Says(f"POST {_SUBSCRIPTION}:pull", '{"maxMessages":"100","returnImmediately":"true"}',
         lambda document: document["receivedMessages"] == [], why="A5"),
]  # fmt: skip
GO = [
    Says(f"GET {_SUBSCRIPTION}?key=$token", why="must decode", needs=lambda document:
         isinstance(document["ackDeadlineSeconds"], int) and document["topic"].startswith("/projects/")
         and isinstance(document["pushConfig"]["retryPolicy"], dict)),
    Says(f"POST {_SUBSCRIPTION}:pull?key=$token", '{"maxMessages":"1","returnImmediately":"true"}',
         lambda document: len(document["receivedMessages"]) == 1, keeps=_FIRST_ACK, why="R1"),
    Says(f"POST {_SUBSCRIPTION}:acknowledge?key=$token", '{"ackIds":["$ack"]}'),
    Says("GET /v1/users:byToken/$token?key=$token", needs=has("name")),
]  # fmt: skip
_TOPIC = f"{_PROJECT}/topics/demo_egi_service_keycloak_demo"
_DEPLOYER = "/subscriptions/demo_egi_service_keycloak_demo_deployer_1"
NODE = [
    Says(f"GET {_TOPIC}", status=404, why="A10"),
    Says(f"PUT {_TOPIC}", "{}"),
    Says(f"GET {_TOPIC}:acl", needs=lambda document: document["authorized_users"] == [], why="A23"),
    Says(f"POST {_TOPIC}:modifyAcl", '{"authorized_users":["$P-agent"]}'),
    Says(f"PUT {_PROJECT}{_DEPLOYER}",
         '{"topic":"projects/$P/topics/demo_egi_service_keycloak_demo","ackDeadlineSeconds":10}'),
    Says(f"GET {_TOPIC}/subscriptions", why="A4", needs=lambda document:
         document["subscriptions"][0].startswith("/projects/") and document["subscriptions"][0].endswith(_DEPLOYER)),
    Says(f"POST {_TOPIC}:publish?key=$agent_token", '{"messages":[{"attributes":{},"data":"eyJpZCI6MX0="}]}',
         has("messageIds")),
]  # fmt: skip
SET_UP = [
    Says("GET /v1/users/ams_${P}_publisher", status=404),
    Says("POST /v1/users/ams_${P}_publisher", '{"projects":[{"project":"$P","roles":["publisher"]}]}', has("token")),
    Says(f"POST {_PROJECT}/members/ams_${{P}}_publisher", '{"projects": [{"project": "$P", "roles": ["publisher"]}]}',
         status=409, why="A11: then it asks for the uuid"),
    Says(f"GET {_PROJECT}/members/ams_${{P}}_publisher", needs=has("uuid")),
    Says(f"POST {_PROJECT}/topics/metric_data:modifyAcl", '{"authorized_users":["ams_${P}_publisher"]}'),
    Says("GET /v1/users/ams_${P}_publisher", why="A18", needs=lambda document:
         document["projects"][0]["topics"] == ["metric_data"] and document["projects"][0]["subscriptions"] == []),
    Says(f"GET {_PROJECT}/topics/metric_data:metrics", why="A21", needs=lambda document:
         [each["timeseries"][0]["value"] for each in document["metrics"]
          if each["metric"] == "topic.number_of_messages"] == [5]),
]  # fmt: skip
COLLECTION = [
    Says("POST /v1/projects/$P-ci?key=$token", "{}"),
    Says("POST /v1/projects/$P-ci/members/$P-ci-user?key=$token", why="R2: header and query at once",
         body='{"projects":[{"project":"$P-ci","roles":["publisher","consumer"]}]}',
         keeps={"user_token": lambda document: document["token"]}),
    Says("PUT /v1/projects/$P-ci/topics/topic1?key=$token"),
    Says("PUT /v1/projects/$P-ci/subscriptions/sub1?key=$token",
         '{"topic":"projects/$P-ci/topics/topic1","ackDeadlineSeconds":300,"pushConfig":{}}'),
    Says("POST /v1/projects/$P-ci/topics/topic1:publish?key=$token",
         '{"messages":[{"attributes":{"foo":"bar"},"data":"bXNnIDE="},{"data":"bXNnIDI="}]}',
         lambda document: document == {"messageIds": ["0", "1"]}, why="A16"),
    Says("POST /v1/projects/$P-ci/subscriptions/sub1:pull?key=$token", '{"maxMessages":"1"}', keeps=_FIRST_ACK),
    Says("POST /v1/projects/$P-ci/subscriptions/sub1:acknowledge?key=$token", '{"ackIds":["$ack"]}'),
    Says("POST /v1/projects/$P-ci/subscriptions/sub1:pull?key=$token", '{"maxMessages":"1"}',
         lambda document: document["receivedMessages"][0]["ackId"].endswith("/subscriptions/sub1:1")),
    Says("DELETE /v1/projects/$P-ci?key=$token"),
]  # fmt: skip
PAGE = [
    Says("GET /v1/users/profile", needs=lambda document: len(document["service_roles"]) > 0),
    Says("POST /v1/users/$P-ui", '{"projects":[{"project":"$P","roles":["consumer"],"topics":[],"subscriptions":[]}],'
         '"email":"u@site.example","service_roles":[]}', has("uuid", "token"), why="R4"),
    Says(f"POST {_PROJECT}/members/$P-ui:remove", '""', lambda document: document == {}, why="R6"),
    Says(f"POST {_PROJECT}/members/$P-ui:add", '{"roles":["publisher"]}', has("projects")),
    Says(f"PUT {_PROJECT}/topics/ui", '{"schema":""}', lambda document: document["name"].split("/")[4] == "ui",
         why="R5, A4"),
    Says(f"POST {_PROJECT}/schemas/ui", '{"type":"json","schema":{"type":"object","required":["a"]}}', has("uuid")),
    Says(f"PUT {_PROJECT}/schemas/ui", '{"name":"projects/$P/schemas/ui","type":"json","schema":{"type":"object"}}',
         why="the full name in `name`"),
    Says(f"POST {_PROJECT}/topics/ui:attachSchema", '{"schema":"projects/$P/schemas/ui"}'),
    Says(f"POST {_PROJECT}/topics/ui:detachSchema", "{}", why="R6"),
    Says(f"PUT {_PROJECT}/subscriptions/ui", '{"topic":"projects/$P/topics/ui","pushConfig":{}}',
         lambda document: isinstance(document["pushConfig"]["verified"], bool)),
    Says(f"POST {_PROJECT}/subscriptions/ui:modifyPushConfig", '{"pushConfig":{}}', why="{} clears"),
    Says(f"POST {_PROJECT}/subscriptions/ui:verifyPushEndpoint", '""', status=409, why="push is off"),
    Says("GET /v1/metrics", needs=lambda document: all(each["timeseries"] for each in document["metrics"]), why="A21"),
    Says("GET /v1/metrics/va_metrics?&start_date=2024-01-01&end_date=2024-12-31&projects=$P", why="R10",
         needs=lambda document: "total_message_count" in document["projects_metrics"]),
]  # fmt: skip

CONVERSATIONS: dict[str, tuple[Mapping[str, str], list[Says]]] = {
    "Java: a job from a date and from now": (WITH_TOKEN | JSON, JAVA),
    "Go: push worker and push server": ({"User-Agent": "Go-http-client/1.1", "Content-Type": ""}, GO),
    "Node: federation registry": (WITH_TOKEN | JSON | {"Accept": "application/json, text/plain, */*"}, NODE),
    "scripts: set-up of a tenant": (WITH_TOKEN | JSON, SET_UP),
    "scripts: CI collection": (WITH_TOKEN, COLLECTION),
    "browser: administration page": (WITH_TOKEN | JSON | BROWSER, PAGE),
}
