"""argo-streaming, Flink jobs: a small HTTP client class in Java, JSON content type on every call."""

from typing import Any

from tests.acceptance.clients.wire import Need, Says, lists

HEADERS = """
x-api-key: $token
Content-Type: application/json
User-Agent: Apache-HttpClient/4.5.13 (Java/11.0.21)
Accept-Encoding: gzip,deflate
"""
_SUBSCRIPTION = "/v1/projects/$P/subscriptions/ingest_metric"


def _is_number(name: str) -> Need:
    return lambda document: isinstance(document[name], int)


def _ids(document: Any) -> list[str]:
    return [each["message"]["messageId"] for each in document["receivedMessages"]]


FROM_A_RUN_DATE = [
    Says(f"GET {_SUBSCRIPTION}:timeToOffset?time=1999-01-02T00:00:00.000Z", HEADERS, needs=_is_number("offset"),
         keeps={"offset": lambda document: str(document["offset"])}, why="midnight of the run's day"),
    Says(f"POST {_SUBSCRIPTION}:modifyOffset", HEADERS, '{"offset":$offset}'),
]  # fmt: skip
PULL_AND_ACK_THE_LAST = [
    Says(f"POST {_SUBSCRIPTION}:pull", HEADERS, '{"maxMessages":"3","returnImmediately":"true"}',
         needs=lambda document: _ids(document) == ["0", "1", "2"],
         keeps={"last": lambda document: document["receivedMessages"][-1]["ackId"]}),
    Says(f"POST {_SUBSCRIPTION}:acknowledge", HEADERS, '{"ackIds":["$last"]}', needs=lambda document: document == {},
         why="R9: the last id acknowledges the batch; A13: the answer has a body"),
    Says(f"POST {_SUBSCRIPTION}:pull", HEADERS, '{"maxMessages":"1","returnImmediately":"true"}',
         needs=lambda document: document["receivedMessages"][0]["message"]["messageId"] == "3"),
]  # fmt: skip
FROM_NOW = [
    Says(f"GET {_SUBSCRIPTION}:offsets", HEADERS, needs=_is_number("max"),
         keeps={"offset": lambda document: str(document["max"])}),
    Says(f"POST {_SUBSCRIPTION}:modifyOffset", HEADERS, '{"offset":$offset}'),
    Says(f"POST {_SUBSCRIPTION}:pull", HEADERS, '{"maxMessages":"100","returnImmediately":"true"}',
         needs=lambda document: document["receivedMessages"] == [], why="A5: an array, never null"),
]  # fmt: skip
RESULTS = [
    Says("POST /v1/projects/$P/topics/metric_data:publish", HEADERS,
         '{"messages":[{"attributes":{},"data":"eyJzdGF0dXMiOiJPSyJ9"}]}', needs=lists("messageIds")),
]  # fmt: skip
