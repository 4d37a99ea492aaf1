"""Programs in Go: the push worker for developers, and the reference's push server. Token in the query."""

from tests.acceptance.clients.wire import Says

_AGENT = "User-Agent: Go-http-client/1.1\nAccept-Encoding: gzip\n"
_EMPTY_TYPE = _AGENT + "Content-Type:"
_SUBSCRIPTION = "/v1/projects/$P/subscriptions/ingest_metric"

PUSH_WORKER = [
    Says(f"GET {_SUBSCRIPTION}?key=$token", _EMPTY_TYPE, why="must decode",
         needs=lambda document: isinstance(document["ackDeadlineSeconds"], int)
         and document["name"] == document["name"].strip() and document["topic"].startswith("/projects/")
         and isinstance(document["pushConfig"]["pushEndpoint"], str)
         and isinstance(document["pushConfig"]["retryPolicy"], dict)),
    Says(f"POST {_SUBSCRIPTION}:pull?key=$token", _EMPTY_TYPE, '{"maxMessages":"1","returnImmediately":"true"}',
         needs=lambda document: len(document["receivedMessages"]) == 1,
         keeps={"ack": lambda document: document["receivedMessages"][0]["ackId"]}, why="R1: an empty content type"),
    Says(f"POST {_SUBSCRIPTION}:acknowledge?key=$token", _EMPTY_TYPE, '{"ackIds":["$ack"]}'),
]  # fmt: skip
PUSH_SERVER = [
    Says("GET /v1/users:byToken/$worker_token?key=$worker_token", _AGENT,
         needs=lambda document: isinstance(document.get("projects", []), list),
         why="restarts from its user's subscriptions"),
    Says(f"POST {_SUBSCRIPTION}:pull?key=$worker_token", _AGENT + "Content-Type: application/json",
         '{"maxMessages":"2","returnImmediately":"true"}',
         needs=lambda document: set(document["receivedMessages"][0]["message"])
         <= {"messageId", "data", "attributes", "publishTime"},
         keeps={"ack": lambda document: document["receivedMessages"][-1]["ackId"]}),
    Says(f"POST {_SUBSCRIPTION}:acknowledge?key=$worker_token", _AGENT + "Content-Type: application/json",
         '{"ackIds":["$ack"]}', why="only the last id of its batch"),
]  # fmt: skip
